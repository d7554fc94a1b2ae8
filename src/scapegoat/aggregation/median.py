"""Coordinate-wise median (Yin et al. 2018)."""

from __future__ import annotations

from scapegoat.aggregation.base import Aggregate, AggregationContext, Rule, Stack, check_several, register
from scapegoat.aggregation.network import middle_mean
from scapegoat.aggregation.stack import screened


@screened()
def median(stack: Stack) -> Aggregate:
    """The median of every coordinate; for an even number of updates, the mean of the two in the middle."""
    return stack.aggregate(middle_mean(stack, (len(stack) - 1) // 2))


@register("median")
class Median(Rule):
    """The median of every coordinate."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The coordinate-wise median."""
        return median(stack)

    def check(self, updates_per_step: int) -> None:
        """Of one update, the median is the mean."""
        check_several(self.name, updates_per_step)
