"""Bulyan (El Mhamdi et al. 2018): Krum picks, then a trimmed mean around the median of every coordinate."""

from __future__ import annotations

import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.multi_krum import Malicious, krum_repeated
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_malicious, register
from scapegoat.combining.sorting_network import column_blocks, in_order
from scapegoat.combining.stack import screened


@screened(by_gram=True)
def bulyan(stack: Stack, malicious: int = 1) -> Aggregate:
    """Of theta = n - 2f updates that Krum picks one by one, the mean of the theta - 2f values closest to the median.

    The median of an even number of values is the lower of the two in the middle: as in the paper, it is one of them.
    `kept` are the updates picked. With too few well-formed updates for f, the largest f with 4f + 3 <= n is used.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> bulyan(torch.cat([updates, updates[:3]]), malicious=1).update.abs().max().item() < 2
    True
    """
    n = len(stack)
    f = min(malicious, max(0, (n - 3) // 4))
    kept = torch.zeros(n, dtype=torch.bool)
    kept[krum_repeated(geometry.squared_distances(stack.gram()), f, n - 2 * f)] = True
    count = n - 4 * f
    out = column_blocks(
        stack.subset(kept), lambda wires, free, target: closest_mean(in_order(wires, free), count, target)
    )
    return stack.aggregate(out, kept, {"malicious": f})


def closest_mean(ordered: list[Tensor], count: int, out: Tensor, middle: Tensor | None = None) -> None:
    """Mean of the `count` values of every column that are closest to `middle`, by default the column's lower median.

    `ordered` are the sorted values, n vectors. The closest are neighbours in sorted order: of all windows of `count`
    values, the one whose farther end is nearest. Values outside are left out, never subtracted.
    """
    n = len(ordered)
    middle = ordered[(n - 1) // 2] if middle is None else middle
    first = torch.zeros_like(middle)
    radius = torch.maximum(middle - ordered[0], ordered[count - 1] - middle)
    for start in range(1, n - count + 1):
        reach = torch.maximum(middle - ordered[start], ordered[start + count - 1] - middle)
        first.masked_fill_(reach < radius, start)
        torch.minimum(radius, reach, out=radius)
    out.zero_()
    for i, value in enumerate(ordered):
        # Where every window holds the value, there is nothing to ask.
        everywhere = n - count <= i < count
        out.add_(value if everywhere else value * ((first <= i) & (first > i - count)))
    out.div_(count)


@register("bulyan")
class Bulyan(Rule):
    """Krum picks n - 2f updates; of every coordinate, the mean of the n - 4f values closest to the median."""

    shift_free = True
    by_gram = True
    malicious: Malicious = 1
    """f, the hostile updates that it must stand."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the values around the median of those picked."""
        return bulyan(stack, self.malicious)

    def check(self, updates_per_step: int) -> None:
        """n >= 4f + 3."""
        check_malicious(self.malicious, updates_per_step, 4 * self.malicious + 3, "Bulyan (n >= 4f + 3)")
