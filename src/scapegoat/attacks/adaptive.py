"""The attack that knows the defense: the paper's Algorithm 3, told the trim of ATM."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from scapegoat.attacks.base import Attack, AttackerView, Crafted, register
from scapegoat.attacks.measures import Floats
from scapegoat.attacks.sending import finished, products, to_scale, usable_peers


@register("adaptive")
class Adaptive(Attack):
    """Averages the wrong-label gradient with its farthest peer until ATM would keep it (Algorithm 3); at most `steps`."""

    steps: Annotated[int, Field(ge=1)] = 50

    def craft(self, view: AttackerView) -> Crafted:
        """The wrong-label gradient, moved among the peers."""
        attack = to_scale(view, view.gradients.mean(view.targets.x, view.wrong_labels))
        peers, gram = usable_peers(view)
        if len(peers) == 0:
            return finished(view, attack, {"steps": 0.0, "evades": 0.0})
        dots = products(attack[None], peers)
        square = products(attack[None], attack[None])
        whole = np.block([[gram, dots.T], [dots, square]])
        trim = 1 if view.trim is None else view.trim
        weights, steps, evades = evade_atm(whole, trim, view.senders, self.steps)
        update = torch.from_numpy(weights[:-1]).float() @ peers
        update.add_(attack, alpha=float(weights[-1]))
        return finished(view, update, {"steps": float(steps), "evades": float(evades)})


def evade_atm(gram: Floats, trim: int, senders: int, limit: int) -> tuple[Floats, int, bool]:
    """Algorithm 3 on the Gram matrix of the peers and, last, the attack gradient.

    Returns the weights of the update over those vectors, the steps taken, and whether ATM with this trim would keep the
    update: its mean angle is below the 2b-th largest of the peers' and its own rows.
    """
    peers = len(gram) - 1
    weights = np.zeros(peers + 1)
    weights[-1] = 1.0
    for step in range(limit + 1):
        rows = np.vstack([np.eye(peers, peers + 1), np.tile(weights, (senders, 1))])
        angles = _angles(rows @ gram @ rows.T)
        means = angles.mean(axis=1)
        if means[-1] < np.sort(means)[::-1][min(2 * trim, len(means)) - 1]:
            return weights, step, True
        if step == limit:
            break
        weights = weights / 2
        weights[int(np.argmax(angles[-1, :peers]))] += 0.5
    return weights, limit, False


def _angles(gram: Floats) -> Floats:
    norms = np.sqrt(np.maximum(np.diag(gram), 0.0))
    scale = np.outer(norms, norms)
    cosines = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    angles = np.arccos(np.clip(cosines, -1.0, 1.0))
    np.fill_diagonal(angles, 0.0)
    return np.asarray(angles, dtype=np.float64)
