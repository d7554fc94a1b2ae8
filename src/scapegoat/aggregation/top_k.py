"""Top-k: every update keeps only its largest coordinates (Aji & Heafield 2017)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.aggregation.base import Aggregate, AggregationContext, Stack, Transform, register
from scapegoat.aggregation.stack import screened


@screened()
def top_k(stack: Stack, fraction: float = 0.5) -> Aggregate:
    """Mean of the updates, each with only its k = ceil(fraction · d) largest coordinates by magnitude."""
    total = torch.zeros(stack.d)
    for i, row in enumerate(stack.rows):
        factor = 1.0 if stack.scale is None else float(stack.scale[i])
        total.add_(largest(row, fraction), alpha=factor / len(stack))
    return stack.aggregate(total, notes={"fraction": fraction})


def largest(row: Tensor, fraction: float) -> Tensor:
    """The vector with its ceil(fraction · d) largest magnitudes and zeros elsewhere; ties go by position."""
    d = len(row)
    k = min(d, math.ceil(fraction * d - 1e-9))
    if k == d:
        return row.clone()
    # The k-th largest magnitude by selection, not by a sort. NumPy's partition works in place on the one copy made.
    magnitude = row.abs()
    magnitude.numpy().partition(d - k)
    threshold = float(magnitude[d - k])
    torch.abs(row, out=magnitude)
    kept = magnitude > threshold
    missing = k - int(kept.sum())
    ties = (magnitude == threshold).nonzero().flatten()[:missing]
    kept[ties] = True
    return torch.mul(row, kept, out=magnitude)


@register("top_k")
class TopK(Transform):
    """Every update keeps the given fraction of its coordinates, the largest by magnitude."""

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.5

    @property
    def rowwise(self) -> bool:
        """Each client's own largest coordinates."""
        return True

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The rows with zeros in place of their smaller coordinates."""
        rows = torch.empty(len(stack), stack.d)
        for i, row in enumerate(stack.rows):
            rows[i] = largest(row, self.fraction)
            if stack.scale is not None:
                rows[i] *= float(stack.scale[i])
        return stack.holding(rows), {"fraction": self.fraction}

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the sparse rows, without holding them all."""
        return top_k(stack, self.fraction)
