"""An aggregation rule: the mean of the updates whose norms are neither the smallest nor the largest."""

from typing import Annotated

import torch
from pydantic import Field

from scapegoat.aggregation import Aggregate, AggregationContext, Rule, Stack, register


@register("trimmed_norm")
class TrimmedNorm(Rule):
    """Drop the `trim` shortest and the `trim` longest updates; average the rest."""

    trim: Annotated[int, Field(ge=1, description="Updates to drop at each end.")] = 1

    def check(self, updates_per_step: int) -> None:
        """Refuse, before anything runs, what cannot work."""
        if 2 * self.trim >= updates_per_step:
            raise ValueError(f"trim {self.trim} leaves nobody of {updates_per_step} updates")

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """`stack` holds the well-formed updates [n, d]; the answer says what was kept."""
        order = stack.norms().argsort(stable=True)
        kept = torch.zeros(len(stack), dtype=torch.bool)
        kept[order[self.trim : len(order) - self.trim]] = True
        return stack.aggregate(stack.mean(kept), kept)
