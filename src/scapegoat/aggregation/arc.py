"""Adaptive robust clipping (Allouah et al. 2025): the longest updates are clipped to the longest of the others."""

from __future__ import annotations

import math

from torch import Tensor

from scapegoat.aggregation.multi_krum import Malicious
from scapegoat.combining.rule import Aggregate, AggregationContext, Stack, Transform, check_malicious, register
from scapegoat.combining.stack import screened


@screened()
def arc(stack: Stack, malicious: int = 1) -> Aggregate:
    """Mean of the updates, the floor(2f/n · (n - f)) longest of which are shortened to the next norm (Algorithm 2).

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> arc(updates, malicious=1).notes["clipped"]
    1
    """
    changed, notes = adaptively_clipped(stack, malicious)
    return changed.aggregate(changed.mean(), notes=notes)


def adaptively_clipped(stack: Stack, malicious: int) -> tuple[Stack, dict[str, float]]:
    """The rows, none longer than the bound, and notes; with too few updates, f is the largest with 2f < n."""
    lengths, n = stack.norms(), len(stack)
    f = min(malicious, (n - 1) // 2)
    cut = math.floor(2 * f * (n - f) / n)
    bound = float(lengths.sort().values[n - cut - 1])
    factors: Tensor = (bound / lengths.clamp_min(1e-300)).clamp_max(1.0)
    return stack.scaled(factors), {"clip": bound, "clipped": int((lengths > bound).sum())}


@register("arc")
class ARC(Transform):
    """Adaptive robust clipping: the longest updates, some 2f of them, are clipped to the longest of the others."""

    malicious: Malicious = 1
    """f, the hostile updates that it must stand."""

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The shortened rows."""
        return adaptively_clipped(stack, self.malicious)

    def check(self, updates_per_step: int) -> None:
        """More than half of the updates must be honest, and there must be two."""
        check_malicious(self.malicious, updates_per_step, max(2, 2 * self.malicious + 1), "arc (n > 2f)")
