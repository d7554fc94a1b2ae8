"""Bulyan (El Mhamdi et al. 2018): Krum picks, then a trimmed mean around the median of every coordinate."""

from __future__ import annotations

import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.base import Aggregate, AggregationContext, Rule, Stack, check_malicious, register
from scapegoat.aggregation.multi_krum import Malicious, krum_order
from scapegoat.aggregation.stack import screened

_BLOCK_FLOATS = 1 << 20


@screened(by_gram=True)
def bulyan(stack: Stack, malicious: int = 1) -> Aggregate:
    """Of theta = n - 2f updates that Krum picks one by one, the mean of the theta - 2f values closest to the median.

    The median of an even number of values is the lower of the two in the middle: as in the paper, it is one of them.
    `kept` are the updates picked. With too few well-formed updates for f, the largest f with 4f + 3 <= n is used.
    """
    n = len(stack)
    f = min(malicious, max(0, (n - 3) // 4))
    kept = torch.zeros(n, dtype=torch.bool)
    kept[krum_order(geometry.squared_distances(stack.gram()), f, n - 2 * f)] = True
    chosen = stack.subset(kept)
    theta = n - 2 * f
    out = torch.empty(stack.d)
    width = max(1 << 10, _BLOCK_FLOATS // theta)
    for start in range(0, stack.d, width):
        values = torch.stack(chosen.columns(start, min(start + width, stack.d)))
        out[start : start + width] = closest_mean(values, theta - 2 * f)
    return stack.aggregate(out, kept, {"malicious": f})


def closest_mean(values: Tensor, count: int) -> Tensor:
    """Mean of the `count` values of every column [n, c] that are closest to the column's lower median.

    They are neighbours in sorted order: of all windows of `count` values, the one whose farther end is nearest.
    """
    n = len(values)
    ordered = values.sort(0).values
    middle = ordered[(n - 1) // 2]
    best = torch.zeros(values.shape[1], dtype=torch.int64)
    radius = torch.full((values.shape[1],), torch.inf)
    for first in range(n - count + 1):
        reach = torch.maximum(middle - ordered[first], ordered[first + count - 1] - middle)
        nearer = reach < radius
        best[nearer] = first
        radius = torch.where(nearer, reach, radius)
    total = torch.zeros(values.shape[1])
    for i in range(count):
        total += ordered.gather(0, (best + i)[None])[0]
    return total / count


@register("bulyan")
class Bulyan(Rule):
    """Krum picks n - 2f updates; of every coordinate, the mean of the n - 4f values closest to the median."""

    by_gram = True
    malicious: Malicious = 1

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the values around the median of those picked."""
        return bulyan(stack, self.malicious)

    def check(self, updates_per_step: int) -> None:
        """n >= 4f + 3."""
        check_malicious(self.malicious, updates_per_step, 4 * self.malicious + 3, "Bulyan (n >= 4f + 3)")
