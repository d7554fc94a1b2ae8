"""Split rows whose places are all in this process: what processes would do, without the processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from scapegoat.chunked_sums import column_spans
from scapegoat.combining.stack import Stack
from scapegoat.split_rows import Held, SplitRows, laid_out


class Here(SplitRows):
    def __init__(self, matrix: Tensor, places: int) -> None:
        n, self.d = matrix.shape
        self.whole = True
        self.spans = column_spans(n, self.d, places)
        self.gathered: list[str] = []
        self._held: list[Held] = []
        for first, last in self.spans:
            block = laid_out(n, last - first, self.d)
            block.copy_(matrix[:, first:last])
            self._held.append(block)

    def __len__(self) -> int:
        return len(self._held[0])

    def each(self, work: Callable[[int, Held], Any], places: Sequence[int] | None = None) -> list[Any]:
        chosen = range(len(self.spans)) if places is None else places
        return [work(self.spans[k][0], self._held[k]) for k in chosen]

    def chain(self, total: Any, step: Callable[..., Any], prepare: Callable[..., Any] | None = None) -> Any:
        for (first, _), held in zip(self.spans, self._held, strict=True):
            total = step(total, first, held if prepare is None else prepare(first, held))
        return total

    def some(self, rows: Sequence[int]) -> Here:
        other = copy.copy(self)
        other.whole, other._held = False, [[held[i] for i in rows] for held in self._held]
        return other

    def gathers(self, why: str) -> None:
        self.gathered.append(why)


def split(matrix: Tensor, places: int = 3) -> Stack:
    return Stack(Here(matrix, places), torch.ones(len(matrix), dtype=torch.bool), matrix.shape[1])
