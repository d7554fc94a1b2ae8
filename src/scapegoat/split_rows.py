"""Rows whose columns lie apart: each place holds some columns of every row, and none holds a whole row.

What is asked of such rows is computed where the columns are, and put together in the order in which one process
computes it, so that the answers are the same, bit for bit. What cannot be asked in this way is fetched: a row at a
time, or a block of columns.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Held = Tensor | Sequence[Tensor]
"""Some columns of all rows: a matrix [n, w], or n vectors where the rows are separate ones."""

LINE = 16
"""Floats of a cache line."""


class SplitRows(Sequence[Tensor], ABC):
    """n rows of length d. `whole` ones stand for a matrix [n, d], others for n vectors, which are summed otherwise.

    `spans` are the first and the last column (exclusive) of each place, in order and without gaps.
    """

    d: int
    device: torch.device = torch.device("cpu")
    whole: bool
    spans: Sequence[tuple[int, int]]

    @abstractmethod
    def each(self, work: Callable[[int, Held], T], places: Sequence[int] | None = None) -> list[T]:
        """`work(first column, columns)`, done at each place (or at some), all at once; the answers in order."""

    @abstractmethod
    def chain(self, total: T, step: Callable[[T, int, Any], T], prepare: Callable[[int, Held], Any] | None = None) -> T:
        """`step(total, first column, columns)` at one place after the other, each with the total of those before.

        With `prepare` it is given what that made of the columns, at all places at once.
        """

    @abstractmethod
    def some(self, rows: Sequence[int]) -> SplitRows:
        """Some of the rows, as separate ones."""

    @abstractmethod
    def gathers(self, why: str) -> None:
        """Say that all rows are about to be brought to one place."""

    def block(self, start: int, stop: int, rows: Sequence[int] | None = None, like: int | None = None) -> Tensor:
        """Columns start..stop of all rows, or of some, laid out as in a matrix of `like` columns (by default d)."""
        count = len(self) if rows is None else len(rows)
        out = laid_out(count, stop - start, self.d if like is None else like)
        places = [k for k, (first, last) in enumerate(self.spans) if first < stop and last > start]
        cut = functools.partial(_cut, start, stop, None if rows is None else list(rows))
        for place, columns in zip(places, self.each(cut, places), strict=True):
            first = max(self.spans[place][0], start) - start
            out[:, first : first + columns.shape[1]] = columns
        return out

    def matrix(self, rows: int | None = None) -> Tensor:
        """All rows, or the first ones, as a matrix [n, d]."""
        return self.block(0, self.d, None if rows is None else range(rows))

    def __getitem__(self, row: Any) -> Any:
        """One row [d]."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.block(0, self.d, [row])[0]


def laid_out(rows: int, width: int, like: int, room: Callable[[int], Tensor] = torch.empty) -> Tensor:
    """A matrix [rows, width], not filled, whose rows begin at such places of a cache line as those of `like` columns.

    Matrix products of few rows read them where they are, and sum in an order that follows from where that is. `room`
    makes room for so many floats.
    """
    stride = width + (like - width) % LINE
    return room(rows * stride).as_strided((rows, width), (stride, 1))


def _cut(start: int, stop: int, rows: list[int] | None, first: int, held: Held) -> Tensor:
    begin, end = max(0, start - first), stop - first
    if isinstance(held, Tensor):
        return held[:, begin:end] if rows is None else held[rows, begin:end]
    return torch.stack([held[i][begin:end] for i in (range(len(held)) if rows is None else rows)])
