"""Top-k: every update keeps only its largest coordinates (Aji & Heafield 2017)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.combining.rule import Aggregate, AggregationContext, Stack, Transform, register
from scapegoat.combining.stack import screened

_WIDTH = 1 << 15
"""Columns at a time: no more than one thread works on. Thousands of short operations that each wait for a second thread
take ten times as long where that thread has to share its core."""


@screened(plain=True)
def top_k(stack: Stack, fraction: float = 0.5) -> Aggregate:
    """Mean of the updates, each with only its k = ceil(fraction · d) largest coordinates by magnitude.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> top_k(updates[4:] + torch.tensor([1.0, 0.0]), fraction=0.5).update.tolist()
    [0.0, 9.0]
    """
    total, scratch = torch.zeros(stack.d, device=stack.device), torch.empty(stack.d, device=stack.device)
    for i, row in enumerate(stack.rows):
        factor = 1.0 if stack.scale is None else float(stack.scale[i])
        add_largest(total, row, fraction, factor / len(stack), scratch)
    return stack.aggregate(total, notes={"fraction": fraction})


def add_largest(total: Tensor, row: Tensor, fraction: float, factor: float, scratch: Tensor) -> None:
    """total += factor · row at the ceil(fraction · d) largest magnitudes of the row; ties go by position."""
    d = len(row)
    k = min(d, math.ceil(fraction * d - 1e-9))
    if k == d:
        total.add_(row, alpha=factor)
        return
    if row.device.type != "cpu":
        largest = row.abs().argsort(descending=True, stable=True)[:k]
        total.index_add_(0, largest, row[largest], alpha=factor)
        return
    # The k-th largest magnitude by selection, not by a sort, in place.
    torch.abs(row, out=scratch).numpy().partition(d - k)
    threshold = float(scratch[d - k])
    ties = k - sum(int((part > threshold).sum()) for part in torch.split(scratch[d - k :], _WIDTH))
    for start in range(0, d, _WIDTH):
        part = row[start : start + _WIDTH]
        magnitude = part.abs()
        kept = magnitude > threshold
        if ties > 0:
            tied = (magnitude == threshold).nonzero().flatten()[:ties]
            kept[tied] = True
            ties -= len(tied)
        total[start : start + _WIDTH].add_(part * kept, alpha=factor)


@register("top_k")
class TopK(Transform):
    """Every update keeps the given fraction of its coordinates, the largest by magnitude."""

    plain = True
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the coordinates that each client keeps."""

    @property
    def rowwise(self) -> bool:
        """Each client's own largest coordinates."""
        return True

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The rows with zeros in place of their smaller coordinates."""
        rows = torch.zeros(len(stack), stack.d, device=stack.device)
        scratch = torch.empty(stack.d, device=stack.device)
        for i, row in enumerate(stack.rows):
            add_largest(rows[i], row, self.fraction, 1.0 if stack.scale is None else float(stack.scale[i]), scratch)
        return stack.holding(rows), {"fraction": self.fraction}

    def needs(self, updates: int, d: int) -> int:
        """Alone, it holds one row at a time."""
        return 2 * d

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the sparse rows, without holding them all."""
        return top_k(stack, self.fraction)
