"""Geometric median by the smoothed Weiszfeld algorithm (Pillutla et al. 2022, "RFA")."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from scapegoat import geometry
from scapegoat.aggregation.base import Aggregate, AggregationContext, Rule, Stack, register
from scapegoat.aggregation.stack import screened


@screened(by_gram=True)
def geometric_median(
    stack: Stack, smoothing: float = 1e-6, iterations: int = 100, tolerance: float = 1e-9
) -> Aggregate:
    """The point with the smallest sum of distances to the updates, by Weiszfeld steps from their mean.

    Each step is z <- sum_i a_i x_i with a_i proportional to 1 / max(nu, |x_i - z|). As z is a combination of the rows,
    |x_i - z|² = sum_j a_j D_ij - sum_jk a_j a_k D_jk / 2 with the squared distances D, so that a step costs O(n²),
    whatever d. nu is `smoothing` times the root mean square distance between updates; the steps end when the
    coefficients move by less than `tolerance` (sum of absolute values) or after `iterations`.
    """
    n = len(stack)
    squared = geometry.squared_distances(stack.gram())
    nu = smoothing * float((squared.sum() / max(1, n * (n - 1))).sqrt())
    a = torch.full((n,), 1 / n, dtype=torch.float64)
    steps = 0
    while nu > 0 and steps < iterations:
        to_rows = squared @ a
        distance = (to_rows - a @ to_rows / 2).clamp_min(0).sqrt()
        weights = 1 / distance.clamp_min(nu)
        weights /= weights.sum()
        moved = float((weights - a).abs().sum())
        a, steps = weights, steps + 1
        if moved < tolerance:
            break
    return stack.aggregate(stack.weighted(a), notes={"iterations": steps})


@register("geometric_median")
class GeometricMedian(Rule):
    """The point with the smallest sum of distances to the updates."""

    by_gram = True
    smoothing: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    iterations: Annotated[int, Field(ge=1)] = 100
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-9

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The smoothed geometric median."""
        return geometric_median(stack, self.smoothing, self.iterations, self.tolerance)
