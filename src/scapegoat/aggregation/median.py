"""Coordinate-wise median (Yin et al. 2018)."""

from __future__ import annotations

from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_several, register
from scapegoat.combining.sorting_network import middle_mean
from scapegoat.combining.stack import screened


@screened(plain=True)
def median(stack: Stack) -> Aggregate:
    """The median of every coordinate; for an even number of updates, the mean of the two in the middle.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> median(updates).update.tolist()
    [1.0, 1.125]
    """
    return stack.aggregate(middle_mean(stack, (len(stack) - 1) // 2))


@register("median")
class Median(Rule):
    """The median of every coordinate."""

    plain = True
    shift_free = True

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The coordinate-wise median."""
        return median(stack)

    def check(self, updates_per_step: int) -> None:
        """Of one update, the median is the mean."""
        check_several(self.name, updates_per_step)
