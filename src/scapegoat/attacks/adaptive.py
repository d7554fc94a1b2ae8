"""The attack that knows the defense: the paper's Algorithm 3, told the trim of ATM, or any rule by a copy of it."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, WithJsonSchema, field_validator

from scapegoat import aggregation
from scapegoat.crafting.black_box import aim
from scapegoat.crafting.contract import Attack, AttackerView, Crafted, Held, register
from scapegoat.crafting.measures import Floats
from scapegoat.crafting.sending import Peers, finished, inner, to_scale


@register("adaptive")
class Adaptive(Attack):
    """Averages the wrong-label gradient with its farthest peer until ATM would keep it; sends the result.

    Algorithm 3 of the paper, at most `steps` steps, told the trim b of the federation's rule (1 where it has none).
    With `target_rule`, a defense as the spec writes it, the attack is aimed at that rule instead: it runs a copy of the
    rule on the peers and its own candidates, `evaluations` times per round, and sends the candidate that moves the
    output farthest along the wrong-label gradient (never less far than Algorithm 3's result, which is tried as well).
    """

    told_trim = True

    steps: Annotated[int, Field(ge=1)] = 50
    """The most steps of Algorithm 3."""
    target_rule: Annotated[Any, WithJsonSchema({"allowed": "a defense, or null"})] = None
    """A defense, as the spec writes it, that the attack is aimed at by trying a copy of it; none: ATM."""
    evaluations: Annotated[int, Field(ge=4)] = 24
    """Times per round that the copy of `target_rule` is tried."""

    @field_validator("target_rule")
    @classmethod
    def _known_rule(cls, value: Any) -> Any:
        return None if value is None else aggregation.parse(value).canonical()

    def reads(self, held: Held) -> bool:
        """A copy of a rule is given all updates in float32."""
        return held == "float32" or self.target_rule is None

    def craft(self, view: AttackerView) -> Crafted:
        """The wrong-label gradient, moved among the peers."""
        peers = Peers.of(view)
        attack = to_scale(view, peers, view.gradients.mean(view.targets.x, view.wrong_labels))
        if len(peers) == 0:
            return finished(view, peers, attack, {"steps": 0.0, "evades": 0.0})
        dots = peers.dot(attack)
        whole = np.block([[peers.gram, dots[:, None]], [dots[None], np.array([[inner(attack, attack)]])]])
        if not np.isfinite(whole).all():
            return finished(view, peers, torch.zeros_like(attack), {"diverged": 1.0})
        weights, steps, evades = evade_atm(whole, 1 if view.trim is None else view.trim, view.senders, self.steps)
        update = peers.weighted(weights[:-1]).add_(attack, alpha=float(weights[-1]))
        notes = {"steps": float(steps), "evades": float(evades), "attack_weight": float(weights[-1])}
        if self.target_rule is not None:
            aimed = aim(view, peers, attack, aggregation.parse(self.target_rule), self.evaluations, update)
            if aimed is not None:
                update = aimed.update
                notes = {"strength": aimed.strength, "gain": aimed.gain, "kept_by_copy": aimed.kept}
        return finished(view, peers, update, notes)


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
