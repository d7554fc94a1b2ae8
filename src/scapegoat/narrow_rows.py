"""Rows held in bfloat16, half as much memory, and read in float32: some columns at a time, or one row.

To whoever asks they are rows whose columns lie apart, each place being a block of columns that is small in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from scapegoat.split_rows import Held, SplitRows

T = TypeVar("T")

READ_FLOATS = 1 << 24
"""Numbers of all rows that are read at a time (64 MB)."""

ALIGNED = 4096
"""Blocks begin at multiples of this, the length over which float32 products are summed."""


class NarrowRows(SplitRows):
    """n vectors [d] in bfloat16.

    Examples
    --------
    >>> rows = NarrowRows(torch.ones(3, 5, dtype=torch.bfloat16))
    >>> len(rows), rows[1].dtype, [tuple(columns.shape) for columns in rows.each(lambda first, held: held)]
    (3, torch.float32, [(3, 5)])
    """

    whole = False

    def __init__(self, held: Tensor | Sequence[Tensor]) -> None:
        self._held = held if isinstance(held, Tensor) else tuple(held)
        self.d = int(self._held[0].numel()) if len(self._held) else 0
        self.device = self._held[0].device if len(self._held) else torch.device("cpu")
        width = max(1, READ_FLOATS // (ALIGNED * max(1, len(self)))) * ALIGNED
        self.spans = [(first, min(self.d, first + width)) for first in range(0, self.d, width)]

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, row: Any) -> Any:
        """One row [d] in float32."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self._held[row].float()

    def each(self, work: Callable[[int, Held], T], places: Sequence[int] | None = None) -> list[T]:
        """One block of columns after the other."""
        spans = self.spans if places is None else [self.spans[k] for k in places]
        return [work(first, self.block(first, last)) for first, last in spans]

    def chain(self, total: T, step: Callable[[T, int, Any], T], prepare: Callable[[int, Held], Any] | None = None) -> T:
        """One block of columns after the other."""
        for first, last in self.spans:
            columns = self.block(first, last)
            total = step(total, first, columns if prepare is None else prepare(first, columns))
        return total

    def some(self, rows: Sequence[int]) -> NarrowRows:
        """Views of some of the rows."""
        return NarrowRows([self._held[i] for i in rows])

    def gathers(self, why: str) -> None:
        """They are in one place already; whoever needs all of them in float32 has said so to the memory estimate."""

    def block(self, start: int, stop: int, rows: Sequence[int] | None = None, like: int | None = None) -> Tensor:
        """Columns start..stop of all rows, or of some, in float32."""
        if isinstance(self._held, Tensor) and rows is None:
            return self._held[:, start:stop].float()
        chosen = range(len(self)) if rows is None else rows
        return torch.stack([self._held[i][start:stop] for i in chosen]).float()
