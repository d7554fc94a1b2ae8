"""Per-sample gradients of one layer, held in the form that is cheapest to take inner products with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from scapegoat.devices import exact, host
from scapegoat.kernels.routes import Product, RowProduct
from scapegoat.kernels.row_products import self_products, vector_products
from scapegoat.kernels.sparse_products import InputFacts

BLOCK_FLOATS = 8_000_000
"""Room for intermediate results: what would take more is worked through in blocks of this many floats (32 MB)."""


@dataclass(frozen=True)
class Slot:
    """Where a parameter lies in the flat vector."""

    start: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def of(self, vector: Tensor) -> Tensor:
        """The parameter's part of a flat vector, in its shape."""
        return vector[self.start : self.start + self.size].view(self.shape)

    def columns(self, vectors: Tensor) -> Tensor:
        """The parameter's part of flat vectors [k, d]: [k, p]."""
        return vectors[:, self.start : self.start + self.size]


class Piece(Protocol):
    """The per-sample gradients [s, p] of some of the parameters, answering without being built."""

    @staticmethod
    def joined(pieces: list[Any]) -> Piece:
        """The samples of several pieces, all of this class, one after the other."""

    def gram(self) -> Tensor:
        """Inner products of the samples with each other [s, s]."""

    def dot(self, vectors: Tensor) -> Tensor:
        """Inner products with the parameters' part of flat vectors [k, d]: [s, k]."""

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """Write the weighted sum of the samples into the parameters' part of `out` [d]."""

    def total(self, rows: slice, out: Tensor) -> None:
        """Write the sum of a range of samples into the parameters' part of `out` [d]."""

    def squares(self) -> Tensor:
        """The samples' squared norms [s], float64."""

    def weighted(self, weights: Tensor) -> Piece:
        """The samples times `weights` [s]; this piece is not to be used any more."""


def _squares(rows: Tensor) -> Tensor:
    """Squared norms of the rows [s], float64: a float32 square overflows at 1e19."""
    norms: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=exact(rows.device))
    return norms.square_()


def _chosen(weights: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """The samples whose weights, on the host, are not zero, and those weights, where `out` is."""
    chosen = weights.nonzero()[:, 0]
    return chosen.to(out.device), weights[chosen].to(out.device)


class LinearGradients:
    """A linear layer read at one position per sample: gradient of sample i is Delta_i A_i^T (and Delta_i for the bias).

    <g_i, g_j> = (A_i . A_j + 1)(Delta_i . Delta_j), so nothing of the weight's size is built.
    """

    def __init__(
        self,
        a: Tensor,
        delta: Tensor,
        weight: Slot | None,
        bias: Slot | None,
        facts: InputFacts | None = None,
        route: Product | None = None,
    ) -> None:
        self.a, self.delta, self.weight, self.bias, self.facts, self.route = a, delta, weight, bias, facts, route
        self.sparse = None if facts is None or route == "dense" else facts.sparse

    @staticmethod
    def joined(pieces: list[LinearGradients]) -> LinearGradients:
        """The samples of one after those of the other."""
        first = pieces[0]
        if len(pieces) == 1:
            return first
        a, delta = torch.cat([p.a for p in pieces]), torch.cat([p.delta for p in pieces])
        return LinearGradients(a, delta, first.weight, first.bias, first.facts and InputFacts(a), first.route)

    def gram(self) -> Tensor:
        """(A A^T + 1) o (Delta Delta^T)."""
        outer = self_products(self.delta)
        if self.weight is None:
            return outer
        inner = self_products(self.a) if self.facts is None else self.facts.gram(self.a)
        return outer.mul_(inner if self.bias is None else inner + 1)

    def dot(self, vectors: Tensor) -> Tensor:
        """One matrix product a vector."""
        result = torch.zeros(len(self.delta), len(vectors), device=self.delta.device)
        if self.weight is not None:
            for k, vector in enumerate(vectors):
                matrix = self.weight.of(vector)
                if self.sparse is None:
                    result[:, k] = (self.a @ matrix.T).mul_(self.delta).sum(1)
                else:
                    result[:, k] = self.sparse.bilinear(self.a, matrix, self.delta, self.route)
        if self.bias is not None:
            result.addmm_(self.delta, self.bias.columns(vectors).T)
        return result

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """Delta^T diag(w) A."""
        chosen, factors = _chosen(weights, out)
        self._write(self.a[chosen], self.delta[chosen] * factors[:, None], out)

    def total(self, rows: slice, out: Tensor) -> None:
        """Delta^T A."""
        first, last, _ = rows.indices(len(self.delta))
        if first == 0:
            self.totals([last], out[None])
        else:
            self._write(self.a[rows], self.delta[rows], out)

    def totals(self, ends: Sequence[int], out: Tensor) -> None:
        """Delta^T A of consecutive ranges of samples, each into its row of `out` [k, d]."""
        if self.sparse is None:
            for row, (start, end) in zip(out, itertools.pairwise((0, *ends)), strict=True):
                self._write(self.a[start:end], self.delta[start:end], row)
            return
        if self.weight is not None:
            weights = [self.weight.of(row) for row in out]
            self.sparse.weight_gradients(self.a, self.delta, ends, weights, self.route)
        if self.bias is not None:
            for row, (start, end) in zip(out, itertools.pairwise((0, *ends)), strict=True):
                torch.sum(self.delta[start:end], 0, out=self.bias.of(row))

    def squares(self) -> Tensor:
        """(|A|^2 + 1) |Delta|^2."""
        squares = _squares(self.delta)
        inner = squares.new_zeros(()) if self.weight is None else _squares(self.a)
        return squares.mul_(inner if self.bias is None else inner + 1)

    def weighted(self, weights: Tensor) -> LinearGradients:
        """The same inputs, Delta times the weights."""
        delta = self.delta * weights[:, None]
        return LinearGradients(self.a, delta, self.weight, self.bias, self.facts, self.route)

    def _write(self, a: Tensor, delta: Tensor, out: Tensor) -> None:
        if self.weight is not None:
            torch.mm(delta.T, a, out=self.weight.of(out))
        if self.bias is not None:
            torch.sum(delta, 0, out=self.bias.of(out))


class SampleRows:
    """Per-sample gradients written out [s, p], for parameters where that is small or nothing better is known."""

    def __init__(self, parts: list[tuple[Slot, Tensor]], route: RowProduct | None = None) -> None:
        self.parts, self.route = parts, route

    @staticmethod
    def joined(pieces: list[SampleRows]) -> SampleRows:
        """The samples of one after those of the other."""
        if len(pieces) == 1:
            return pieces[0]
        columns = zip(*(piece.parts for piece in pieces), strict=True)
        parts = [(column[0][0], torch.cat([rows for _, rows in column])) for column in columns]
        return SampleRows(parts, pieces[0].route)

    def gram(self) -> Tensor:
        """G G^T."""
        total = self_products(self.parts[0][1], self.route)
        for _, rows in self.parts[1:]:
            total += self_products(rows, self.route)
        return total

    def dot(self, vectors: Tensor) -> Tensor:
        """G V^T."""
        total = torch.zeros(len(self.parts[0][1]), len(vectors), device=vectors.device)
        for slot, rows in self.parts:
            if self.route is None:
                total.addmm_(rows, slot.columns(vectors).T)
            else:
                total += vector_products(rows, slot.columns(vectors), self.route)
        return total

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """w^T G."""
        for slot, rows in self.parts:
            torch.mv(rows.T, weights.to(out.device), out=slot.of(out).view(-1))

    def total(self, rows: slice, out: Tensor) -> None:
        """Sum of the rows."""
        for slot, all_rows in self.parts:
            torch.sum(all_rows[rows], 0, out=slot.of(out).view(-1))

    def squares(self) -> Tensor:
        """|G|^2."""
        return torch.stack([_squares(rows) for _, rows in self.parts]).sum(0)

    def weighted(self, weights: Tensor) -> SampleRows:
        """The rows, changed in place."""
        return SampleRows([(slot, rows.mul_(weights[:, None])) for slot, rows in self.parts], self.route)


class Positions:
    """A linear map read at several positions per sample: g_i = sum_t Delta_it A_it^T (a [s, t, f], delta [s, t, o]).

    Where positions are few, <g_i, g_j> = sum_tu (A_it . A_ju + 1)(Delta_it . Delta_ju); else the gradients are built
    for some output units at a time.
    """

    def __init__(self, a: Tensor, delta: Tensor, weight: Slot | None, bias: Slot | None) -> None:
        self.a, self.delta, self.weight, self.bias = a, delta, weight, bias

    @staticmethod
    def joined(pieces: list[Positions]) -> Positions:
        """The samples of one after those of the other."""
        a, delta = torch.cat([p.a for p in pieces]), torch.cat([p.delta for p in pieces])
        return Positions(a, delta, pieces[0].weight, pieces[0].bias)

    def gram(self) -> Tensor:
        """Inner products of the samples with each other."""
        samples, steps, units = self.delta.shape
        bias_gram = self.delta.new_zeros(samples, samples) if self.bias is None else self_products(self.delta.sum(1))
        if self.weight is None:
            return bias_gram
        features = self.a.shape[2]
        if steps * steps * (features + units) <= features * units:
            return bias_gram.add_(self._ghost_gram())
        for block in self._blocks():
            bias_gram += self_products(block)
        return bias_gram

    def _ghost_gram(self) -> Tensor:
        samples, steps, _ = self.delta.shape
        flat_a, flat_delta = self.a.flatten(0, 1), self.delta.flatten(0, 1)
        total = self.delta.new_empty(samples, samples)
        stride = max(1, BLOCK_FLOATS // (steps * samples * steps))
        for start in range(0, samples, stride):
            rows = slice(start * steps, min(samples, start + stride) * steps)
            inner = (flat_a[rows] @ flat_a.T).mul_(flat_delta[rows] @ flat_delta.T)
            total[start : start + stride] = inner.view(-1, steps, samples, steps).sum((1, 3))
        return total

    def _blocks(self) -> Iterator[Tensor]:
        samples, _, units = self.delta.shape
        stride = max(1, BLOCK_FLOATS // (samples * self.a.shape[2]))
        for start in range(0, units, stride):
            yield torch.bmm(self.delta[:, :, start : start + stride].transpose(1, 2), self.a).flatten(1)

    def dot(self, vectors: Tensor) -> Tensor:
        """One matrix product a vector."""
        samples = len(self.delta)
        result = self.delta.new_zeros(samples, len(vectors))
        flat_a, flat_delta = self.a.flatten(0, 1), self.delta.flatten(0, 1)
        for k, vector in enumerate(vectors):
            if self.weight is not None:
                mapped = flat_a @ self.weight.of(vector).T
                result[:, k] = mapped.mul_(flat_delta).view(samples, -1).sum(1)
            if self.bias is not None:
                result[:, k] += self.delta.sum(1) @ self.bias.of(vector)
        return result

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """Sum over positions of Delta^T diag(w) A."""
        chosen, factors = _chosen(weights, out)
        self._write(self.a[chosen], self.delta[chosen] * factors[:, None, None], out)

    def total(self, rows: slice, out: Tensor) -> None:
        """Sum over positions of Delta^T A."""
        self._write(self.a[rows], self.delta[rows], out)

    def squares(self) -> Tensor:
        """sum_tu (A_it . A_iu + 1)(Delta_it . Delta_iu) where positions are few, else from the gradients themselves.

        The products are taken in float64: what positions add may cancel, and a norm that is found too small would let
        a record pass unclipped.
        """
        samples, steps, units = self.delta.shape
        wide = exact(self.delta.device)
        total = torch.zeros(samples, dtype=wide, device=self.delta.device)
        if self.bias is not None:
            total += _squares(self.delta.sum(1))
        if self.weight is None:
            return total
        features = self.a.shape[2]
        if 2 * steps * (features + units) > features * units:
            for block in self._blocks():
                total += _squares(block)
            return total
        stride = max(1, BLOCK_FLOATS // (2 * steps * (2 * steps + features + units)))
        for start in range(0, samples, stride):
            a, delta = self.a[start : start + stride].to(wide), self.delta[start : start + stride].to(wide)
            inner = torch.bmm(a, a.transpose(1, 2)).mul_(torch.bmm(delta, delta.transpose(1, 2)))
            total[start : start + stride] += inner.sum((1, 2)).clamp_(min=0)
        return total

    def weighted(self, weights: Tensor) -> Positions:
        """The same inputs, Delta times the weights."""
        return Positions(self.a, self.delta * weights[:, None, None], self.weight, self.bias)

    def _write(self, a: Tensor, delta: Tensor, out: Tensor) -> None:
        delta = delta.flatten(0, 1)
        if self.weight is not None:
            torch.mm(delta.T, a.flatten(0, 1), out=self.weight.of(out))
        if self.bias is not None:
            torch.sum(delta, 0, out=self.bias.of(out))


class Lookup:
    """An embedding: the gradient of sample i adds Delta_it to the row that its token t names."""

    def __init__(self, tokens: Tensor, delta: Tensor, weight: Slot) -> None:
        self.tokens, self.delta, self.weight = tokens, delta, weight

    @staticmethod
    def joined(pieces: list[Lookup]) -> Lookup:
        """The samples of one after those of the other."""
        tokens, delta = torch.cat([p.tokens for p in pieces]), torch.cat([p.delta for p in pieces])
        return Lookup(tokens, delta, pieces[0].weight)

    def gram(self) -> Tensor:
        """Inner products of the samples, some rows of the table at a time; rows that no sample names are zero."""
        samples, steps, width = self.delta.shape
        # Which rows there are is decided on the host: their number is a shape.
        names, place = torch.unique(host(self.tokens).flatten(), return_inverse=True)
        owner, delta = torch.arange(samples, device="cpu").repeat_interleave(steps), self.delta.flatten(0, 1)
        stride = max(1, min(len(names), BLOCK_FLOATS // (samples * width)))
        total = delta.new_zeros(samples, samples)
        for start in range(0, len(names), stride):
            here = ((place >= start) & (place < start + stride)).nonzero()[:, 0]
            rows = (owner[here] * stride + place[here] - start).to(delta.device)
            block = delta.new_zeros(samples * stride, width)
            block.index_add_(0, rows, delta[here.to(delta.device)])
            total += self_products(block.view(samples, -1))
        return total

    def dot(self, vectors: Tensor) -> Tensor:
        """Each vector's rows at the tokens, times Delta."""
        return torch.stack([(self.weight.of(v)[self.tokens] * self.delta).sum((1, 2)) for v in vectors], 1)

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """Weighted rows, added where the tokens point."""
        self._write(self.tokens, self.delta * weights.to(out.device)[:, None, None], out)

    def total(self, rows: slice, out: Tensor) -> None:
        """Rows, added where the tokens point."""
        self._write(self.tokens[rows], self.delta[rows], out)

    def squares(self) -> Tensor:
        """A sample's Delta are summed by token first."""
        samples, steps, width = self.delta.shape
        entries, device = self.weight.shape[0], self.delta.device
        owner = torch.arange(samples, device="cpu").repeat_interleave(steps)
        names, place = torch.unique(owner * entries + host(self.tokens).flatten(), return_inverse=True)
        rows = self.delta.new_zeros(len(names), width).index_add_(0, place.to(device), self.delta.flatten(0, 1))
        total = torch.zeros(samples, dtype=exact(device), device=device)
        return total.index_add_(0, (names // entries).to(device), _squares(rows))

    def weighted(self, weights: Tensor) -> Lookup:
        """The same tokens, Delta times the weights."""
        return Lookup(self.tokens, self.delta * weights[:, None, None], self.weight)

    def _write(self, tokens: Tensor, delta: Tensor, out: Tensor) -> None:
        self.weight.of(out).zero_().index_add_(0, tokens.flatten(), delta.flatten(0, 1))
