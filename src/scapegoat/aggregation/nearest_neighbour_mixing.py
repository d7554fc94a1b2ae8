"""Nearest-neighbour mixing (Allouah et al. 2023): every update becomes the mean of those nearest to it."""

from __future__ import annotations

import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.multi_krum import Malicious
from scapegoat.combining.rule import Aggregate, AggregationContext, Stack, Transform, check_malicious, register
from scapegoat.combining.stack import screened


@screened(by_gram=True)
def nearest_neighbour_mixing(stack: Stack, malicious: int = 1) -> Aggregate:
    """Mean of the mixed updates, each being the mean of the n-f updates nearest to one (Algorithm 2 of the paper).

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> nearest_neighbour_mixing(updates, malicious=1).update.abs().max().item() < 4
    True
    """
    weights, f = mixing(stack, malicious)
    return stack.aggregate(stack.weighted(weights.mean(0)), notes={"malicious": f})


def mixing(stack: Stack, malicious: int) -> tuple[Tensor, int]:
    """Weights [n, n] of the updates in every mean, and f: with too few updates, the largest f with 2f < n.

    An update is the nearest to itself; other ties go by row order.
    """
    n = len(stack)
    f = min(malicious, (n - 1) // 2)
    distances = geometry.squared_distances(stack.gram()).fill_diagonal_(-1)
    nearest = distances.argsort(dim=1, stable=True)[:, : n - f]
    return torch.zeros(n, n, dtype=torch.float64).scatter_(1, nearest, 1 / (n - f)), f


@register("nearest_neighbour_mixing")
class NearestNeighbourMixing(Transform):
    """Every update becomes the mean of the n - f nearest to it: honest clients that differ look more alike."""

    turn_free = True
    shift_free = True
    by_gram = True
    malicious: Malicious = 1
    """f, the hostile updates that it must stand."""

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The mixed rows."""
        weights, f = mixing(stack, self.malicious)
        return stack.holding(stack.combined(weights)), {"malicious": f}

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the mixed rows, without making them."""
        return nearest_neighbour_mixing(stack, self.malicious)

    def check(self, updates_per_step: int) -> None:
        """More than half of the updates must be honest, and there must be two."""
        least = max(2, 2 * self.malicious + 1)
        check_malicious(self.malicious, updates_per_step, least, "nearest_neighbour_mixing (n > 2f)")
