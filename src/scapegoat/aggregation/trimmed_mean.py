"""Coordinate-wise trimmed mean (Yin et al. 2018)."""

from __future__ import annotations

from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, Trim, check_trim, register, trim_count
from scapegoat.combining.sorting_network import middle_mean
from scapegoat.combining.stack import screened


@screened(plain=True)
def trimmed_mean(stack: Stack, trim: int | float = 1) -> Aggregate:
    """Mean of every coordinate without its b largest and b smallest values.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> trimmed_mean(updates[2:], trim=1).update.tolist()
    [0.75, 1.25]
    """
    b = trim_count(trim, len(stack))
    return stack.aggregate(middle_mean(stack, b), notes={"trim": b})


@register("trimmed_mean")
class TrimmedMean(Rule):
    """The mean of every coordinate without its b largest and b smallest values."""

    plain = True
    shift_free = True
    trim: Trim = 1
    """b: values dropped at each end of every coordinate; a number, or a share of the updates."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The coordinate-wise trimmed mean."""
        return trimmed_mean(stack, self.trim)

    def check(self, updates_per_step: int) -> None:
        """2b < n."""
        check_trim(self.trim, updates_per_step)
