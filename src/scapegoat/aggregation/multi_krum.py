"""Krum and Multi-Krum (Blanchard et al. 2017): the updates that lie closest to their neighbours."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.base import Aggregate, AggregationContext, Rule, Stack, check_malicious, register
from scapegoat.aggregation.stack import screened
from scapegoat.errors import OptionError

Neighbours = Literal["n-f-2", "n-f-1"]
Malicious = Annotated[int, Field(ge=0)]


def _select(value: object) -> int | float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if 0 < value < 1:
            return float(value)
        if 1 <= value < math.inf and value == int(value):
            return int(value)
    raise OptionError("", f"{value!r} is not allowed: a whole number from 1, or a fraction between 0 and 1, is wanted")


Select = Annotated[int | float, BeforeValidator(_select)]
"""How many updates k to pick: a number, or a fraction of the updates of the step."""


def krum_order(squared_distances: Tensor, malicious: int, count: int, neighbours: Neighbours = "n-f-2") -> list[int]:
    """The first `count` rows in the order in which Krum picks them, each time among those not yet picked.

    A row's score is the sum of the squared distances to its n-f-2 nearest others of the n left (the paper's variant:
    n-f-1), at least one. The lowest score is picked; ties go by row order.
    """
    fewer = 2 if neighbours == "n-f-2" else 1
    distances = squared_distances.clone().fill_diagonal_(math.inf).numpy()
    # Each row's others are sorted once; a pick only takes one out of every row.
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :-1]
    distances = np.take_along_axis(distances, nearest, axis=1)
    left = np.ones(len(distances), dtype=bool)
    picked: list[int] = []
    while left.any() and len(picked) < count:
        rows = np.flatnonzero(left)
        near = min(max(1, len(rows) - malicious - fewer), len(rows) - 1)
        among = distances[rows][left[nearest[rows]]].reshape(len(rows), len(rows) - 1)
        picked.append(int(rows[among[:, :near].sum(axis=1).argmin()]))
        left[picked[-1]] = False
    return picked


@screened(by_gram=True)
def multi_krum(
    stack: Stack, malicious: int = 1, select: int | float = 0.5, neighbours: Neighbours = "n-f-2"
) -> Aggregate:
    """Mean of the k updates that Krum picks one after the other, scoring those left anew each time.

    `select` is k, or a fraction of the updates (rounded down, at least one); `malicious` is the f that is guarded
    against. With too few well-formed updates for n-f-2 neighbours, one neighbour decides.
    """
    k = min(len(stack), select if isinstance(select, int) else max(1, math.floor(select * len(stack) + 1e-9)))
    kept = torch.zeros(len(stack), dtype=torch.bool)
    kept[krum_order(geometry.squared_distances(stack.gram()), malicious, k, neighbours)] = True
    return stack.aggregate(stack.mean(kept), kept, {"selected": k})


@register("multi_krum")
class MultiKrum(Rule):
    """The mean of the k updates closest to their neighbours; k is half of them by default."""

    by_gram = True
    malicious: Malicious = 1
    select: Select = 0.5
    neighbours: Neighbours = "n-f-2"

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of those picked."""
        return multi_krum(stack, self.malicious, self.select, self.neighbours)

    def check(self, updates_per_step: int) -> None:
        """At least one neighbour in the first score, and as many updates as are to be picked."""
        fewer = 2 if self.neighbours == "n-f-2" else 1
        check_malicious(self.malicious, updates_per_step, self.malicious + fewer + 1, f"Krum with {self.neighbours}")
        if self.select > updates_per_step:
            raise OptionError("select", f"{self.select} is too many: at most {updates_per_step}, the updates of a step")
