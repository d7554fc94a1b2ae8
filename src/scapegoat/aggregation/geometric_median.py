"""Geometric median by the smoothed Weiszfeld algorithm (Pillutla et al. 2022, "RFA")."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_several, register
from scapegoat.combining.stack import screened


@screened(by_gram=True)
def geometric_median(
    stack: Stack, smoothing: float = 1e-6, iterations: int = 100, tolerance: float = 1e-9
) -> Aggregate:
    """The point with the smallest sum of distances to the updates, by Weiszfeld steps.

    The majority are the rows in the smallest ball around a row that holds more than half of them (in every such ball,
    if several are as small). The steps begin at their mean, and nu is `smoothing` times the radius: a minority decides
    neither, however long its updates are. Each step is z <- sum_i a_i x_i with a_i proportional to
    1 / max(nu, |x_i - z|); the steps end when z moves by less than `tolerance` times the radius or after `iterations`.

    As z is a combination of the rows, |x_i - z|² = M_ii - 2 (M a)_i + a·M a with the inner products M of the rows as
    seen from the ball's centre, so that a step costs O(n²), whatever d. From there a row far away has a small a_i to
    match its large products, and nothing cancels in the distances of the others.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> geometric_median(updates).update.abs().max().item() < 2
    True
    """
    products, majority, radius = _from_the_majority(stack.gram())
    nu, length = smoothing * radius, geometry.norms(products)
    a = majority / majority.sum()
    steps = 0
    # Where more than half of the rows are one point, that point is the median.
    while nu > 0 and steps < iterations:
        along = products @ a
        distance = (products.diagonal() - 2 * along + a @ along).clamp_min(0).sqrt()
        weights = 1 / distance.clamp_min(nu)
        weights /= weights.sum()
        moved = float((weights - a).abs() @ length)
        a, steps = weights, steps + 1
        if moved < tolerance * radius:
            break
    return stack.aggregate(stack.weighted(a), notes={"iterations": steps})


def _from_the_majority(gram: Tensor) -> tuple[Tensor, Tensor, float]:
    """Inner products of the rows seen from the centre of the majority, who is in it [n] (1 or 0), and its radius."""
    squared = geometry.squared_distances(gram)
    reach = squared.sort(1).values[:, len(gram) // 2]
    smallest, centre = reach.min(), int(reach.argmin())
    majority = (squared[reach == smallest] <= smallest).any(0)
    products = gram - gram[:, centre, None] - gram[None, centre] + gram[centre, centre]
    return products, majority.double(), float(smallest.sqrt())


@register("geometric_median")
class GeometricMedian(Rule):
    """The point with the smallest sum of distances to the updates."""

    turn_free = True
    shift_free = True
    by_gram = True
    smoothing: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    """Distance, in multiples of the radius, below which an update gains no more weight."""
    iterations: Annotated[int, Field(ge=1)] = 100
    """The most Weiszfeld steps that are taken."""
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-9
    """Move, in multiples of the radius, below which it stops."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The smoothed geometric median."""
        return geometric_median(stack, self.smoothing, self.iterations, self.tolerance)

    def check(self, updates_per_step: int) -> None:
        """Of one update, the median is the mean."""
        check_several(self.name, updates_per_step)
