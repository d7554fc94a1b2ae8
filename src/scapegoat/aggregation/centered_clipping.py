"""Centered clipping (Karimireddy et al. 2021): updates are clipped around the aggregate of the round before."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.norm_clipping import median_of
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_several, register
from scapegoat.combining.stack import screened
from scapegoat.errors import InputError


@screened()
def centered_clipping(
    stack: Stack,
    radius: float | None = None,
    iterations: int = 1,
    state: MutableMapping[str, Tensor] | None = None,
) -> Aggregate:
    """v <- v + mean of (g_k - v) · min(1, radius/|g_k - v|), `iterations` times, from the v of the round before.

    Without a `radius` it is the median distance of the updates to v, at every step. v is kept in `state` as `centre`
    [d]; the first round, and every round without a state, begins at zero.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> centered_clipping(updates, radius=1.0, iterations=20).update.abs().max().item() < 2
    True
    """
    state = {} if state is None else state
    centre = state.get("centre", torch.zeros(stack.d, device=stack.device)).clone()
    if centre.shape != (stack.d,):
        problem = f"centered_clipping remembers {centre.numel()} parameters, the updates have {stack.d}"
        raise InputError(f"{problem}; start with an empty state")
    bound, shortened = 0.0, 0
    for _ in range(iterations):
        distances = _distances(stack, centre)
        bound = median_of(distances) if radius is None else radius
        share = torch.where(distances <= bound, 1.0, bound / distances.clamp_min(1e-300)) / len(stack)
        centre.mul_(1 - float(share.sum())).add_(stack.weighted(share))
        shortened = int((distances > bound).sum())
    state["centre"] = centre
    return stack.aggregate(centre.clone(), notes={"radius": bound, "clipped": shortened})


def _distances(stack: Stack, centre: Tensor) -> Tensor:
    """Distances [n] of the rows to the centre, float64, from their differences: products would cancel near it."""
    scratch = torch.empty(1, stack.d, device=stack.device)
    squares = []
    for i, row in enumerate(stack.rows):
        factor = 1.0 if stack.scale is None else float(stack.scale[i])
        # A quarter of the difference: the square of the whole one may overflow.
        torch.mul(row, factor / 4, out=scratch[0]).sub_(centre, alpha=0.25)
        squares.append(geometry.squared_norms(scratch))
    return 4 * torch.cat(squares).sqrt()


@register("centered_clipping")
class CenteredClipping(Rule):
    """The mean of the updates, each clipped around the aggregate of the round before."""

    turn_free = True
    radius: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """How far from the last aggregate an update counts in full; none: the median distance of the round."""
    iterations: Annotated[int, Field(ge=1, le=1000)] = 1
    """Steps per round, each around the result of the one before."""

    def keeps(self, clients: int, d: int) -> int:
        """The last aggregate."""
        return d

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The clipped mean; the centre is in the context's state."""
        return centered_clipping(stack, self.radius, self.iterations, context.state)

    def check(self, updates_per_step: int) -> None:
        """The median distance of one update clips nothing; a given radius does."""
        if self.radius is None:
            check_several(self.name, updates_per_step)
