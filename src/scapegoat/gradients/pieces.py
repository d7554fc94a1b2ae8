"""Per-sample gradients of one layer, held in the form that is cheapest to take inner products with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

BLOCK_FLOATS = 8_000_000
"""Room for intermediate results: layers with more are worked through in blocks of this many floats (32 MB)."""


@dataclass(frozen=True)
class Slot:
    """Where a parameter lies in the flat vector."""

    start: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(torch.Size(self.shape).numel())

    @property
    def slice(self) -> slice:
        """The entries in the flat vector."""
        return slice(self.start, self.start + self.size)


class Piece(Protocol):
    """The per-sample gradients [s, p] of some of the parameters, answering without being built."""

    def gram(self) -> Tensor:
        """Inner products of the samples with each other [s, s]."""

    def dot(self, vectors: Tensor) -> Tensor:
        """Inner products with the parameters' part of flat vectors [k, d]: [s, k]."""

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """Write the weighted sum of the samples into the parameters' part of `out` [d]."""


class Ghost:
    """A linear layer read at one position a sample: gradient of sample i is Delta_i A_i^T (and Delta_i for the bias).

    <g_i, g_j> = (A_i . A_j + 1)(Delta_i . Delta_j), so nothing of the weight's size is built.
    """

    def __init__(self, a: Tensor, delta: Tensor, weight: Slot | None, bias: Slot | None) -> None:
        self.a, self.delta, self.weight, self.bias = a, delta, weight, bias

    def gram(self) -> Tensor:
        """(A A^T + 1) o (Delta Delta^T)."""
        outer = self.delta @ self.delta.T
        if self.weight is None:
            return outer
        inner = self.a @ self.a.T
        if self.bias is not None:
            inner += 1
        return inner.mul_(outer)

    def dot(self, vectors: Tensor) -> Tensor:
        """One matrix product a vector."""
        result = torch.zeros(len(self.delta), len(vectors))
        for k, vector in enumerate(vectors):
            if self.weight is not None:
                matrix = vector[self.weight.slice].view(self.weight.shape)
                result[:, k] = (self.a @ matrix.T).mul_(self.delta).sum(1)
            if self.bias is not None:
                result[:, k] += self.delta @ vector[self.bias.slice]
        return result

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """Delta^T diag(w) A."""
        chosen = weights.nonzero()[:, 0]
        delta = self.delta[chosen] * weights[chosen, None]
        if self.weight is not None:
            torch.mm(delta.T, self.a[chosen], out=out[self.weight.slice].view(self.weight.shape))
        if self.bias is not None:
            out[self.bias.slice] = delta.sum(0)


class Rows:
    """Per-sample gradients written out [s, p], for parameters where that is small or nothing better is known."""

    def __init__(self, parts: list[tuple[Slot, Tensor]]) -> None:
        self.parts = parts

    def gram(self) -> Tensor:
        """G G^T."""
        total = self.parts[0][1] @ self.parts[0][1].T
        for _, rows in self.parts[1:]:
            total.addmm_(rows, rows.T)
        return total

    def dot(self, vectors: Tensor) -> Tensor:
        """G V^T."""
        total = torch.zeros(len(self.parts[0][1]), len(vectors))
        for slot, rows in self.parts:
            total.addmm_(rows, vectors[:, slot.slice].T)
        return total

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """w^T G."""
        for slot, rows in self.parts:
            torch.mv(rows.T, weights, out=out[slot.slice])


class Positions:
    """A linear map read at several positions a sample: g_i = sum_t Delta_it A_it^T, for a [s, t, f] and delta [s, t, o].

    Where positions are few, <g_i, g_j> = sum_tu (A_it . A_ju + 1)(Delta_it . Delta_ju); else the gradients are built for
    some output units at a time.
    """

    def __init__(self, a: Tensor, delta: Tensor, weight: Slot | None, bias: Slot | None) -> None:
        self.a, self.delta, self.weight, self.bias = a, delta, weight, bias

    def gram(self) -> Tensor:
        """Inner products of the samples with each other."""
        samples, steps, units = self.delta.shape
        if self.weight is None:
            summed = self.delta.sum(1)
            return summed @ summed.T
        features = self.a.shape[2]
        if steps * steps * (features + units) <= features * units:
            return self._ghost_gram()
        total = torch.zeros(samples, samples)
        for block in self._blocks():
            total.addmm_(block, block.T)
        if self.bias is not None:
            summed = self.delta.sum(1)
            total.addmm_(summed, summed.T)
        return total

    def _ghost_gram(self) -> Tensor:
        samples, steps, units = self.delta.shape
        flat_a, flat_delta = self.a.reshape(samples * steps, -1), self.delta.reshape(samples * steps, units)
        total = torch.empty(samples, samples)
        stride = max(1, BLOCK_FLOATS // (steps * samples * steps))
        for start in range(0, samples, stride):
            rows = slice(start * steps, min(samples, start + stride) * steps)
            inner = flat_a[rows] @ flat_a.T
            if self.bias is not None:
                inner += 1
            inner *= flat_delta[rows] @ flat_delta.T
            total[start : start + stride] = inner.view(-1, steps, samples, steps).sum((1, 3))
        return total

    def _blocks(self) -> list[Tensor]:
        samples, _, units = self.delta.shape
        stride = max(1, BLOCK_FLOATS // (samples * self.a.shape[2]))
        return [
            torch.bmm(self.delta[:, :, start : start + stride].transpose(1, 2), self.a).flatten(1)
            for start in range(0, units, stride)
        ]

    def dot(self, vectors: Tensor) -> Tensor:
        """One matrix product a vector."""
        samples, steps, units = self.delta.shape
        result = torch.zeros(samples, len(vectors))
        flat_a, flat_delta = self.a.reshape(samples * steps, -1), self.delta.reshape(samples * steps, units)
        for k, vector in enumerate(vectors):
            if self.weight is not None:
                matrix = vector[self.weight.slice].view(units, -1)
                result[:, k] = (flat_a @ matrix.T).mul_(flat_delta).view(samples, -1).sum(1)
            if self.bias is not None:
                result[:, k] += self.delta.sum(1) @ vector[self.bias.slice]
        return result

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """Sum over positions of Delta^T diag(w) A."""
        chosen = weights.nonzero()[:, 0]
        delta = (self.delta[chosen] * weights[chosen, None, None]).flatten(0, 1)
        if self.weight is not None:
            torch.mm(delta.T, self.a[chosen].flatten(0, 1), out=out[self.weight.slice].view(delta.shape[1], -1))
        if self.bias is not None:
            out[self.bias.slice] = delta.sum(0)


class Lookup:
    """An embedding: the gradient of sample i adds Delta_it to the row that its token t names."""

    def __init__(self, tokens: Tensor, delta: Tensor, weight: Slot) -> None:
        self.tokens, self.delta, self.weight = tokens, delta, weight

    def gram(self) -> Tensor:
        """Inner products of the samples, some rows of the table at a time; rows that no sample names are zero."""
        samples, steps, width = self.delta.shape
        names, place = self.tokens.unique(return_inverse=True)
        owner = torch.arange(samples)[:, None].expand(samples, steps)
        stride = max(1, BLOCK_FLOATS // (samples * width))
        total = torch.zeros(samples, samples)
        for start in range(0, len(names), stride):
            here = (place >= start) & (place < start + stride)
            block = torch.zeros(samples * stride, width)
            block.index_add_(0, owner[here] * stride + place[here] - start, self.delta[here])
            rows = block.view(samples, -1)
            total.addmm_(rows, rows.T)
        return total

    def dot(self, vectors: Tensor) -> Tensor:
        """Each vector's rows at the tokens, times Delta."""
        return torch.stack(
            [(v[self.weight.slice].view(self.weight.shape)[self.tokens] * self.delta).sum((1, 2)) for v in vectors], 1
        )

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """Weighted rows, added where the tokens point."""
        table = out[self.weight.slice].view(self.weight.shape)
        table.zero_()
        table.index_add_(0, self.tokens.flatten(), (self.delta * weights[:, None, None]).flatten(0, 1))
