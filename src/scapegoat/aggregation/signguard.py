"""SignGuard (Xu et al. 2022): updates of unusual length, or with unusually many signs of one kind, are left out."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.aggregation.norm_clipping import clipped, median_of
from scapegoat.combining.clustering import largest_by_mean_shift
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_several, register
from scapegoat.combining.stack import screened
from scapegoat.devices import host


@screened()
def signguard(
    stack: Stack,
    shortest: float = 0.1,
    longest: float = 3.0,
    coordinates: float = 0.1,
    generator: torch.Generator | None = None,
) -> Aggregate:
    """Mean of the updates that pass two filters, clipped to the median norm (Algorithm 2 of the paper).

    A norm must lie between `shortest` and `longest` times the median norm. At random coordinates, a share of all, the
    shares of positive, zero and negative signs are clustered by mean shift, and the largest cluster passes. Where the
    two filters leave nobody, the first alone decides; where that one does, the round changes nothing.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> signguard(updates, coordinates=1.0).kept.tolist()
    [True, True, True, True, False]
    """
    lengths = stack.norms()
    middle = median_of(lengths)
    fitting = (lengths >= shortest * middle) & (lengths <= longest * middle)
    chosen = torch.randperm(stack.d, generator=generator)[: max(1, math.ceil(coordinates * stack.d))].sort().values
    alike = largest_by_mean_shift(sign_shares(stack, chosen), lengths)
    kept = fitting & alike if bool((fitting & alike).any()) else fitting
    changed, bound = clipped(stack)
    notes = {"clip": bound, "by_norm": len(stack) - int(fitting.sum()), "by_sign": len(stack) - int(alike.sum())}
    return changed.aggregate(changed.mean(kept), kept, notes)


def sign_shares(stack: Stack, chosen: Tensor) -> Tensor:
    """Shares of positive, zero and negative numbers [n, 3] among each row's chosen coordinates."""
    counts, there = [], chosen.to(stack.device)
    for row in stack.rows:
        part = row[there]
        counts.append(torch.stack([(part > 0).sum(), (part < 0).sum()]))
    positive, negative = host(torch.stack(counts)).double().unbind(1)
    return torch.stack([positive, len(chosen) - positive - negative, negative], 1) / max(len(chosen), 1)


@register("signguard")
class SignGuard(Rule):
    """Leave out updates of unusual length or with unusual shares of signs; clip the rest to the median norm."""

    shortest: Annotated[float, Field(ge=0, le=1)] = 0.1
    """The least norm that passes, in median norms."""
    longest: Annotated[float, Field(ge=1, le=1e6)] = 3.0
    """The largest norm that passes, in median norms."""
    coordinates: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the coordinates, drawn at random, whose signs are looked at."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of those that pass."""
        return signguard(stack, self.shortest, self.longest, self.coordinates, context.generator)

    def check(self, updates_per_step: int) -> None:
        """One update has nothing to be unusual among."""
        check_several(self.name, updates_per_step)
