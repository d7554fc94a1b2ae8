"""Mean around the median (Xie et al. 2018, "Generalized Byzantine-tolerant SGD")."""

from __future__ import annotations

from torch import Tensor

from scapegoat.aggregation.bulyan import closest_mean
from scapegoat.aggregation.multi_krum import Malicious
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_malicious, register
from scapegoat.combining.sorting_network import column_blocks, in_order
from scapegoat.combining.stack import screened


@screened(plain=True)
def meamed(stack: Stack, malicious: int = 1) -> Aggregate:
    """Of every coordinate, the mean of the n - f values closest to the median.

    The median of an even number is the mean of the two in the middle. With too few well-formed updates for f, the
    largest f with 2f < n is used.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> meamed(updates, malicious=1).update.abs().max().item() < 2
    True
    """
    n = len(stack)
    f = min(malicious, (n - 1) // 2)

    def around(wires: list[Tensor], free: list[Tensor], out: Tensor) -> None:
        ordered = in_order(wires, free)
        closest_mean(ordered, n - f, out, (ordered[(n - 1) // 2] + ordered[n // 2]) / 2)

    return stack.aggregate(column_blocks(stack, around) if f else stack.mean(), notes={"malicious": f})


@register("meamed")
class Meamed(Rule):
    """The mean of the n - f values of every coordinate that are closest to its median."""

    plain = True
    shift_free = True
    malicious: Malicious = 1
    """f, the hostile updates that it must stand."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean around the median."""
        return meamed(stack, self.malicious)

    def check(self, updates_per_step: int) -> None:
        """n > 2f, and something to compare."""
        least = max(2, 2 * self.malicious + 1)
        check_malicious(self.malicious, updates_per_step, least, "meamed (n > 2f)")
