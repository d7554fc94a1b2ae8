"""What a curious server makes of the clients' updates: how far each target's gradient is in them, summed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scapegoat.devices import exact, host
from scapegoat.gradients import GradientOracle
from scapegoat.membership.scores.fedmia import tails
from scapegoat.membership.scores.update_cosine import of_client
from scapegoat.membership.scores.update_regression import log_ratios
from scapegoat.membership.scoring import Floats

AT_ONCE = 128
"""Targets whose gradients are known at a time: their products cost the square of it."""
RIDGE = 0.01
"""Of the regression on gradients of length one: gradients that are nearly the same share their part."""


@dataclass(frozen=True)
class Look:
    """What one round shows of updates [k] and targets: [k, targets] each, NaN where there is no direction.

    `coefficients` are those of an update's regression on the unit gradients of a group of targets; `lengths` [targets]
    is what a coefficient is if the update is the target's own gradient.
    """

    cosines: Floats
    coefficients: Floats
    lengths: Floats


def groups_of(owners: np.ndarray | None, targets: int) -> list[Tensor]:
    """Targets that are looked at together: those suspected in the same client where it is known, `AT_ONCE` at most."""
    everyone = torch.arange(targets)
    if owners is None:
        return list(torch.split(everyone, AT_ONCE))
    suspects = (everyone[torch.from_numpy(owners == owner)] for owner in np.unique(owners))
    return [part for rows in suspects for part in torch.split(rows, AT_ONCE)]


def look(oracle: GradientOracle, x: Tensor, y: Tensor, updates: Tensor, groups: Sequence[Tensor]) -> Look:
    """Hold updates [k, d] against the gradients of the targets, group by group."""
    sizes = host(torch.linalg.vector_norm(updates, dim=1, dtype=exact(updates.device))).double()
    cosines = torch.full((len(updates), len(y)), torch.nan, dtype=torch.float64)
    coefficients, lengths = cosines.clone(), torch.zeros(len(y), dtype=torch.float64)
    for rows in groups:
        there = rows.to(x.device)
        gradients = oracle.per_sample(x[there], y[there])
        gram = gradients.gram().double()
        products = gradients.dot(updates).double()
        del gradients  # its rows are lent by the model's plan; the next part takes them
        norms = gram.diagonal().clamp(min=0).sqrt()
        usable = torch.isfinite(norms) & (norms > 0)
        rows, norms, products = rows[usable], norms[usable], products[usable] / norms[usable, None]
        cosines[:, rows] = (products / sizes).T
        unit = gram[usable][:, usable] / torch.outer(norms, norms)
        inverse = torch.linalg.inv(unit + RIDGE * torch.eye(len(rows), dtype=torch.float64))
        coefficients[:, rows] = (inverse @ products).T
        lengths[rows] = norms * (1 - RIDGE * inverse.diagonal())
    bad = ~torch.isfinite(cosines)
    cosines[bad], coefficients[bad] = torch.nan, torch.nan
    return Look(cosines.numpy(), coefficients.numpy(), lengths.numpy())


class ServerView:
    """Sums over rounds [clients, targets]: all that the scores need of the rounds so far.

    The scores are those of `update_cosine`, `fedmia` and `update_regression` on what all rounds showed, which is never
    kept. The last needs `chance` [clients], that of a client's record to be in its update, and `weight` [clients], that
    of its gradient there; without them it is left out.
    """

    def __init__(
        self, clients: int, targets: int, chance: np.ndarray | None = None, weight: np.ndarray | None = None
    ) -> None:
        self._chance, self._weight = chance, weight
        names = ["cosine", "seen", "tail", "compared"]
        if chance is not None and weight is not None:
            names.append("ratio")
        self._sums = {name: np.zeros((clients, targets)) for name in names}

    def add(self, clients: Sequence[int], found: Look) -> None:
        """Take in one round's updates of these clients."""
        rows = list(clients)
        seen = ~np.isnan(found.cosines)
        tail, compared = tails(found.cosines[None])
        self._sums["cosine"][rows] += np.where(seen, found.cosines, 0.0)
        self._sums["seen"][rows] += seen
        self._sums["tail"][rows] += tail[0]
        self._sums["compared"][rows] += compared[0]
        if self._chance is not None and self._weight is not None:
            expected = self._weight[rows][:, None] * found.lengths
            self._sums["ratio"][rows] += log_ratios(found.coefficients[None], expected[None], self._chance[rows])[0][0]

    def scores(self, client: np.ndarray | None) -> dict[str, Floats]:
        """Scores [targets] by name; `client` [targets] is whom the server suspects, None any client."""
        sums = self._sums
        cosine = np.where(sums["seen"] > 0, sums["cosine"] / sums["seen"].clip(1), -np.inf)
        tail = np.where(sums["compared"] > 0, sums["tail"] / sums["compared"].clip(1), 0.5)
        found = {"update_cosine": of_client(cosine, client), "fedmia": of_client(tail, client)}
        return found | ({"update_regression": of_client(sums["ratio"], client)} if "ratio" in sums else {})

    def state(self) -> dict[str, Tensor]:
        """All that was taken in, as tensors."""
        return {name: torch.from_numpy(value) for name, value in self._sums.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        self._sums = {name: state[name].numpy().copy() for name in self._sums}
