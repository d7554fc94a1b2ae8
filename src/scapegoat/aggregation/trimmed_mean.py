"""Coordinate-wise trimmed mean (Yin et al. 2018)."""

from __future__ import annotations

from scapegoat.aggregation.base import (
    Aggregate,
    AggregationContext,
    Rule,
    Stack,
    Trim,
    check_trim,
    register,
    trim_count,
)
from scapegoat.aggregation.network import middle_mean
from scapegoat.aggregation.stack import screened


@screened()
def trimmed_mean(stack: Stack, trim: int | float = 1) -> Aggregate:
    """Mean of every coordinate without its b largest and b smallest values."""
    b = trim_count(trim, len(stack))
    return stack.aggregate(middle_mean(stack, b), notes={"trim": b})


@register("trimmed_mean")
class TrimmedMean(Rule):
    """The mean of every coordinate without its b largest and b smallest values."""

    trim: Trim = 1

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The coordinate-wise trimmed mean."""
        return trimmed_mean(stack, self.trim)

    def check(self, updates_per_step: int) -> None:
        """2b < n."""
        check_trim(self.trim, updates_per_step)
