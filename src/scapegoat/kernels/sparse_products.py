"""The matrix products that decide what scoring and crafting cost, each by the route that it is told.

Untold, a rule of thumb decides, so that the same sums are taken in the same order whichever machine takes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from scapegoat.kernels.routes import Product
from scapegoat.kernels.row_products import self_products
from scapegoat.kernels.trying import Tried

DENSEST = 0.2
"""Inputs with a greater share of entries that are not zero are not looked at any further."""

STRIP = 64
"""Units of a weight that are transposed at a time: the strip stays in cache while rows are looked up in it."""

LOOKED_UP = 1 << 16
"""Sums that are looked up before they are written to where they belong: more would take memory and save no time."""


class SparseRows:
    """Inputs [s, f] of which most are zero, such as binary records, for products with a weight [o, f].

    The dense rows are passed in with every call, so that a cache of these by tensor does not keep the tensor alive.
    """

    def __init__(self, starts: Tensor, columns: Tensor, values: Tensor | None, features: int) -> None:
        self.samples, self.features = len(starts) - 1, features
        self._starts, self._columns, self._values = starts, columns, values
        self._whole: tuple[Tensor, Tensor, Tensor | None] | None = None

    @classmethod
    def of(cls, dense: Tensor, named: NDArray[np.bool_] | None = None) -> SparseRows:
        """The entries of a matrix that are not zero (`named`, where known); values that are all one are not kept."""
        samples, features = dense.shape
        flat = np.flatnonzero(dense.numpy() != 0 if named is None else named)
        starts = torch.from_numpy(np.searchsorted(flat, np.arange(samples + 1) * features))
        columns = flat - np.repeat(np.arange(samples) * features, starts.diff().numpy())
        values = dense.reshape(-1)[torch.from_numpy(flat)]
        return cls(starts, torch.from_numpy(columns), None if bool((values == 1).all()) else values, features)

    def part(self, rows: slice) -> SparseRows:
        """Some of the rows, one after the other."""
        first, last, _ = rows.indices(self.samples)
        if (first, last) == (0, self.samples):
            return self
        named = slice(int(self._starts[first]), int(self._starts[last]))
        values = None if self._values is None else self._values[named]
        starts = self._starts[first : last + 1] - self._starts[first]
        return SparseRows(starts, self._columns[named], values, self.features)

    def pays(self, rows: slice, units: int, overhead: float, transposed: int = 1) -> bool:
        """Whether looking up beats the dense product of some rows with a weight of so many units.

        Measured on one core: a nanosecond does 35 multiplications of a dense product, 10 looked up, or transposes 1.5;
        `transposed` says how many matrices of the weight's size are.
        """
        first, last, _ = rows.indices(self.samples)
        named = int(self._starts[last] - self._starts[first])
        dense = (last - first) * self.features * units / 35
        return named * units / 10 + transposed * self.features * units / 1.5 + overhead < dense

    def _looked_up(self, route: Product | None, rows: slice, units: int, overhead: float, transposed: int = 1) -> bool:
        return self.pays(rows, units, overhead, transposed) if route is None else route == "looked_up"

    def times(self, dense: Tensor, weight: Tensor, out: Tensor | None = None, route: Product | None = None) -> Tensor:
        """A W^T [s, o], in `out` if it is given: the sum of the columns of W that each row names."""
        units = len(weight)
        result = torch.empty(self.samples, units) if out is None else out
        if not self._looked_up(route, slice(None), units, 5e4):
            return torch.mm(dense, weight.T, out=result)
        for here, sums in self._strips(weight):
            result[:, here] = sums
        return result

    def bilinear(self, dense: Tensor, weight: Tensor, delta: Tensor, route: Product | None = None) -> Tensor:
        """Each row's delta W a [s]."""
        if not self._looked_up(route, slice(None), len(weight), 5e4):
            return (dense @ weight.T).mul_(delta).sum(1)
        total = np.zeros(self.samples, dtype=np.float32)
        factor = delta.numpy()
        for here, sums in self._strips(weight):
            total += np.einsum("ij,ij->i", sums.numpy(), factor[:, here])
        return torch.from_numpy(total)

    def _strips(self, weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """A W^T, a strip of units at a time."""
        units = len(weight)
        matrix = weight.detach().numpy()
        strip = torch.empty(self.features, min(units, STRIP))
        for start in range(0, units, STRIP):
            here = strip if units - start >= STRIP else torch.empty(self.features, units - start)
            _transpose(matrix[start : start + STRIP], here.numpy())
            yield slice(start, start + STRIP), _sums(self._columns, self._starts, self._values, here)

    def weight_gradients(
        self, dense: Tensor, delta: Tensor, ends: Sequence[int], out: list[Tensor], route: Product | None = None
    ) -> None:
        """Write Delta^T A of consecutive ranges of rows into one [o, f] each; the first range starts at row 0.

        Column j of a range sums the Delta of its rows that name j. The ranges are looked up together: what it costs to
        know who names whom is paid once.
        """
        units = delta.shape[1]
        if not self._looked_up(route, slice(0, ends[-1]), units, 1e5, len(ends)):
            for matrix, (start, end) in zip(out, itertools.pairwise((0, *ends)), strict=True):
                torch.mm(delta[start:end].T, dense[start:end], out=matrix)
            return
        names, starts, values = self._transposed(ends)
        several = max(1, LOOKED_UP // (STRIP * self.features))
        for start in range(0, units, STRIP):
            here = slice(start, start + STRIP)
            table = delta[:, here].contiguous()
            for first in range(0, len(ends), several):
                matrices = out[first : first + several]
                bags = starts[first * self.features : (first + len(matrices)) * self.features + 1]
                named = slice(int(bags[0]), int(bags[-1]))
                sums = _sums(names[named], bags - bags[0], None if values is None else values[named], table)
                for matrix, columns in zip(matrices, sums.view(len(matrices), self.features, -1), strict=True):
                    _transpose(columns.numpy(), matrix.numpy()[here])
                del sums, columns

    def _transposed(self, ends: Sequence[int]) -> tuple[Tensor, Tensor, Tensor | None]:
        """For each range and column, the rows that name it: (rows, where each column starts, values)."""
        whole = list(ends) == [self.samples]
        if whole and self._whole is not None:
            return self._whole
        named = int(self._starts[ends[-1]])
        owner = np.repeat(np.arange(ends[-1]), self._starts[: ends[-1] + 1].diff().numpy())
        keys = self._columns[:named].numpy() + np.searchsorted(ends, owner, side="right") * self.features
        columns = len(ends) * self.features
        # Sixteen bits where they are enough: NumPy sorts those in linear time.
        order = np.argsort(keys.astype(np.uint16) if columns <= 1 << 16 else keys, kind="stable")
        starts = torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=columns))]))
        values = None if self._values is None else self._values[:named][torch.from_numpy(order)]
        answer = torch.from_numpy(owner[order]), starts, values
        if whole:
            self._whole = answer
        return answer


def _transpose(source: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write the transpose of a matrix that has few rows or few columns; NumPy is faster at it than torch."""
    _TRANSPOSES(source.shape, source, out)


def _some_rows_at_a_time(step: int) -> Callable[[NDArray[np.float32], NDArray[np.float32]], None]:
    def transpose(source: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        for start in range(0, len(source), step):
            out[:, start : start + step] = source[start : start + step].T

    return transpose


# Of few long rows a core can follow so many at once; of many short ones a block should stay in its nearest cache.
_TRANSPOSES = Tried(*(_some_rows_at_a_time(step) for step in (1 << 62, 128, 64, 16)))


def _sums(names: Tensor, starts: Tensor, values: Tensor | None, table: Tensor) -> Tensor:
    """For each bag of row names, the sum of those rows of the table (times their values)."""
    return torch.embedding_bag(table, names, starts, False, 0, False, values, True)[0]


class InputFacts:
    """What is known of a batch of inputs that comes again every round: its sparse form, its inner products."""

    def __init__(self, dense: Tensor) -> None:
        self.version = dense._version
        plain = dense.dim() == 2 and dense.dtype == torch.float32 and dense.is_contiguous() and dense.numel() > 0
        # Looking up pays on a processor only.
        plain = plain and dense.device.type == "cpu"
        named = dense.numpy() != 0 if plain else np.zeros(0, dtype=bool)
        sparse = plain and np.count_nonzero(named) <= DENSEST * dense.numel()
        self.sparse = SparseRows.of(dense, named) if sparse else None
        self._gram: Tensor | None = None

    def gram(self, dense: Tensor) -> Tensor:
        """A A^T."""
        if self._gram is None:
            self._gram = self_products(dense)
        return self._gram


_FACTS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def facts(inputs: Tensor) -> InputFacts:
    """The facts of an input tensor, kept as long as the tensor lives and is not changed."""
    known: InputFacts | None = _FACTS.get(inputs)  # type: ignore[no-untyped-call]
    if known is None or known.version != inputs._version:
        known = _FACTS[inputs] = InputFacts(inputs)
    return known


def linear(layer: nn.Linear, inputs: Tensor, sparse: SparseRows, route: Product | None = None) -> Tensor:
    """What the layer makes of inputs that are mostly zeros, by looking columns of its weight up."""
    output = sparse.times(inputs, layer.weight.detach(), route=route)
    return output if layer.bias is None else output.add_(layer.bias.detach())


@contextmanager
def replaced(layer: nn.Linear | nn.GroupNorm, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let the layer answer by `forward`, unless somebody has already replaced its own."""
    if type(layer) not in (nn.Linear, nn.GroupNorm) or "forward" in vars(layer):
        yield
        return
    layer.forward = forward  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        del layer.forward
