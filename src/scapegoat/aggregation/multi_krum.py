"""Krum and Multi-Krum (Blanchard et al. 2017): the updates that lie closest to their neighbours."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.combining.rule import (
    Aggregate,
    AggregationContext,
    Rule,
    Stack,
    check_malicious,
    number_or_share,
    number_or_share_schema,
    register,
)
from scapegoat.combining.stack import screened
from scapegoat.errors import OptionError

Neighbours = Literal["n-f-2", "n-f-1"]
Malicious = Annotated[int, Field(ge=0)]

_FEWER: dict[Neighbours, int] = {"n-f-2": 2, "n-f-1": 1}

Select = Annotated[int | float, BeforeValidator(partial(number_or_share, below=1)), number_or_share_schema(1)]
"""How many updates k to pick: a number, or a fraction of the updates of the step."""


def krum_order(squared_distances: Tensor, malicious: int, count: int, neighbours: Neighbours = "n-f-2") -> list[int]:
    """The `count` rows with the lowest Krum scores, lowest first; ties go by row order.

    A row's score is the sum of the squared distances to its n-f-2 nearest others (the paper's variant: n-f-1), at
    least one.
    """
    n = len(squared_distances)
    near = min(max(1, n - malicious - _FEWER[neighbours]), n - 1)
    distances = np.sort(squared_distances.clone().fill_diagonal_(math.inf).numpy(), axis=1)[:, :-1]
    order: list[int] = distances[:, :near].sum(axis=1).argsort(kind="stable").tolist()
    return order[:count]


def krum_repeated(squared_distances: Tensor, malicious: int, count: int, neighbours: Neighbours = "n-f-2") -> list[int]:
    """The first `count` rows that Krum picks one after the other, scoring those not yet picked again each time.

    A score counts the n-f-2 (or n-f-1) nearest of the n rows *left*, at least one: fewer with every pick. Once n is
    2f + 1, f identical rows have none but each other among their nearest, and are picked next.
    """
    distances = squared_distances.clone().fill_diagonal_(math.inf).numpy()
    # Each row's others are sorted once; a pick only takes one out of every row.
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :-1]
    distances = np.take_along_axis(distances, nearest, axis=1)
    left = np.ones(len(distances), dtype=bool)
    picked: list[int] = []
    while left.any() and len(picked) < count:
        rows = np.flatnonzero(left)
        near = min(max(1, len(rows) - malicious - _FEWER[neighbours]), len(rows) - 1)
        among = distances[rows][left[nearest[rows]]].reshape(len(rows), len(rows) - 1)
        picked.append(int(rows[among[:, :near].sum(axis=1).argmin()]))
        left[picked[-1]] = False
    return picked


@screened(by_gram=True)
def multi_krum(
    stack: Stack,
    malicious: int = 1,
    select: int | float = 0.5,
    neighbours: Neighbours = "n-f-2",
    rescore: bool = False,
) -> Aggregate:
    """Mean of the k updates with the lowest Krum scores.

    `select` is k, or a fraction of the updates (rounded down, at least one); `malicious` is the f that is guarded
    against. With too few well-formed updates for n-f-2 neighbours, one neighbour decides.

    With `rescore`, Krum picks one after the other and scores those left again each time. It then ends, with fewer than
    k if need be, while more than 2f + 2 are left to score: among fewer, f identical updates would win.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> multi_krum(updates, malicious=1, select=3).kept.tolist()
    [True, True, False, True, False]
    """
    n = len(stack)
    k = min(n, select if isinstance(select, int) else max(1, math.floor(select * n + 1e-9)))
    squared = geometry.squared_distances(stack.gram())
    if rescore:
        picked = krum_repeated(squared, malicious, max(1, min(k, n - 2 * malicious - 2)), neighbours)
    else:
        picked = krum_order(squared, malicious, k, neighbours)
    kept = torch.zeros(n, dtype=torch.bool)
    kept[picked] = True
    return stack.aggregate(stack.mean(kept), kept, {"selected": len(picked)})


@register("multi_krum")
class MultiKrum(Rule):
    """The mean of the k updates closest to their neighbours; k is half of them by default."""

    turn_free = True
    shift_free = True
    by_gram = True
    malicious: Malicious = 1
    """f, the hostile updates that it must stand."""
    select: Select = 0.5
    """Updates that are kept: a number, or a share of them."""
    neighbours: Neighbours = "n-f-2"
    """How many nearest others a score counts: n-f-2 (the original), or the paper's n-f-1."""

    rescore: bool = False
    """Whether those left are scored again after every pick, while more than 2f + 2 are left; else all just once."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of those picked."""
        return multi_krum(stack, self.malicious, self.select, self.neighbours, self.rescore)

    def check(self, updates_per_step: int) -> None:
        """At least one neighbour in the score, and as many updates as are to be picked."""
        least = self.malicious + _FEWER[self.neighbours] + 1
        check_malicious(self.malicious, updates_per_step, least, f"Krum with {self.neighbours}")
        if self.select > updates_per_step:
            raise OptionError("select", f"{self.select} is too many: at most {updates_per_step}, the updates of a step")
