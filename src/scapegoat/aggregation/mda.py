"""Minimum diameter averaging (El Mhamdi et al. 2020): the mean of the n - f updates that lie closest together."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from scapegoat import geometry
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_malicious, register
from scapegoat.combining.stack import screened

MOST_HOSTILE = 20
"""The work can double with every hostile update."""


@screened(by_gram=True)
def mda(stack: Stack, malicious: int = 1) -> Aggregate:
    """Mean of the n - f updates whose largest distance to each other is smallest.

    Many sets can have that diameter, since two updates decide it. Of these, the one without the update farthest from
    all others (by the sum of distances) is taken, then the one without the next, and so on. With too few updates, f is
    the largest with 2f < n.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> mda(updates, malicious=1).kept.tolist()
    [True, True, True, True, False]
    """
    n = len(stack)
    f = min(malicious, (n - 1) // 2)
    distances = geometry.squared_distances(stack.gram()).sqrt().numpy()
    kept = torch.ones(n, dtype=torch.bool)
    kept[farthest_removed(distances, f)] = False
    inside = distances[kept.numpy()][:, kept.numpy()]
    return stack.aggregate(stack.mean(kept), kept, {"malicious": f, "diameter": float(inside.max())})


def farthest_removed(distances: NDArray[np.float64], f: int) -> list[int]:
    """The f rows without which the largest distance [n, n] is smallest, as `mda` resolves ties.

    A set has at most the diameter t if and only if the rows left out touch every pair that is farther apart than t: a
    vertex cover. The smallest t with a cover of f rows is found by bisection.
    """
    n = len(distances)
    if f == 0:
        return []
    steps = np.unique(distances[np.triu_indices(n, 1)])
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        if _coverable(distances > steps[middle], f):
            high = middle
        else:
            low = middle + 1
    apart = distances > steps[low]
    removed: list[int] = []
    for row in np.lexsort((-np.arange(n), -distances.sum(1))).tolist():  # of rows equally far, the later one first
        if len(removed) == f:
            break
        without = _without(apart, [row])
        if _coverable(without, f - len(removed) - 1):
            removed.append(row)
            apart = without
    return removed


def _coverable(apart: NDArray[np.bool_], size: int) -> bool:
    """Whether `size` rows touch every pair that is apart [n, n]."""
    while True:
        degrees = apart.sum(1)
        most, pairs = int(degrees.max()), int(degrees.sum()) // 2
        if pairs == 0:
            return size >= 0
        if size <= 0 or pairs > size * most:
            return False
        row = int(degrees.argmax())
        single = np.flatnonzero(degrees == 1)
        if most <= size and len(single):
            row = int(apart[single[0]].argmax())  # the only partner of a row touches whatever that row does
        elif 2 < most <= size:
            partners = np.flatnonzero(apart[row]).tolist()
            if _coverable(_without(apart, partners), size - len(partners)):
                return True
        # Its partners are too many, or have just failed; or rings are left, where any row may go first.
        apart, size = _without(apart, [row]), size - 1


def _without(apart: NDArray[np.bool_], rows: list[int]) -> NDArray[np.bool_]:
    left = apart.copy()
    left[rows] = False
    left[:, rows] = False
    return left


@register("mda")
class MDA(Rule):
    """Minimum diameter averaging: the mean of the n - f updates that lie closest together."""

    shift_free = True
    by_gram = True
    malicious: Annotated[int, Field(ge=0, le=MOST_HOSTILE)] = 1
    """f, the hostile updates that it must stand, at most 20."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the closest set."""
        return mda(stack, self.malicious)

    def check(self, updates_per_step: int) -> None:
        """More than half of the updates must be honest, and there must be two."""
        check_malicious(self.malicious, updates_per_step, max(2, 2 * self.malicious + 1), "mda (n > 2f)")
