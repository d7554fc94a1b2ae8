"""Angles, norms and Gram matrices of a stack of vectors.

Everything that a rule or an attack asks about directions and distances follows from one matrix, G[i, j] = <x_i, x_j>.
It is computed once, O(n² d), as float32 products over chunks of d whose sums are kept in float64; the few rows for
which float32 is not enough (nearly parallel to another row, or too small to square) are computed again in float64.

Rows come as a matrix [n, d] or as a sequence of n vectors of one length. Neither is copied: the work goes through
blocks of d. A row with NaN, Inf or an overflowing square spoils its own row and column of G, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from scapegoat.chunked_sums import (
    BLOCK_BYTES,
    CHUNK,
    batched_gram,
    block_width,
    chunked,
    exact_zeros,
    gram_apart,
    row64,
    squares,
    squares_apart,
    told,
)
from scapegoat.devices import CPU, host
from scapegoat.split_rows import SplitRows

Rows = Tensor | SplitRows | Sequence[Tensor]

TINY = 1e-24
"""Squared norms below this may consist of squares that float32 rounds to zero."""

PARALLEL = 0.99
"""Beyond this |cosine|, the float32 error of G would show in the angle or in the distance."""


def dimension(rows: Rows) -> int:
    """Length d of the rows (0 if there are none)."""
    if isinstance(rows, Tensor):
        return rows.shape[1]
    if isinstance(rows, SplitRows):
        return rows.d
    return rows[0].numel() if rows else 0


def blocks(rows: Rows, width: int) -> Iterator[tuple[int, Tensor]]:
    """The stack as (offset, [n, <= width]) blocks of columns: views of a matrix, or copies of separate vectors.

    A copy is good until the next block: they share their memory.
    """
    d = dimension(rows)
    if isinstance(rows, Tensor):
        for start in range(0, d, width):
            yield start, rows[:, start : start + width]
        return
    if isinstance(rows, SplitRows):
        for start in range(0, d, width):
            yield start, rows.block(start, min(d, start + width), like=d if rows.whole else min(width, d))
        return
    buffer = torch.empty(len(rows), min(width, d), device=device_of(rows))
    for start in range(0, d, width):
        parts = [row[start : start + width] for row in rows]
        yield start, torch.stack(parts, out=buffer[:, : len(parts[0])])


def gram(rows: Rows) -> Tensor:
    """G [n, n] in float64, on the host, G[i, j] = <x_i, x_j>: symmetric, relative error about 1e-6 of |x_i||x_j|.

    Pairs with |cosine| > 0.99 and rows with a squared norm below 1e-24 are exact to float64 rounding.
    """
    n = len(rows)
    if n == 0 or dimension(rows) == 0:
        return torch.zeros(n, n, dtype=torch.float64)
    if isinstance(rows, SplitRows) and rows.whole:
        total = gram_apart(rows)
    else:
        total = exact_zeros(device_of(rows), n, n)
        for _, block in blocks(rows, _wide(rows)):
            total += batched_gram(block)
    total = told(total)
    total = total.triu() + total.triu(1).T
    return _refined(rows, total)


def products(left: Rows, right: Rows) -> Tensor:
    """[n, k] in float64, on the host: inner products of n rows with k others, float32 products over chunks of d."""
    if len(left) * len(right) == 0:
        return torch.zeros(len(left), len(right), dtype=torch.float64)
    total = exact_zeros(device_of(left), len(left), len(right))
    width = min(_wide(left), _wide(right))
    for (_, a), (_, b) in zip(blocks(left, width), blocks(right, width), strict=True):
        for x, y in zip(chunked(a), chunked(b), strict=True):
            total += torch.bmm(x, y.transpose(1, 2)).sum(0, dtype=total.dtype)
    return told(total)


def squared_norms(rows: Rows) -> Tensor:
    """Squared Euclidean norms [n] in float64, on the host; Inf or NaN where a row holds one or its square overflows."""
    if dimension(rows) == 0:
        return torch.zeros(len(rows), dtype=torch.float64)
    # A matrix in one go; separate vectors one by one, which spares a copy.
    if isinstance(rows, SplitRows):
        total = squares_apart(rows)
    else:
        total = told(squares(rows) if isinstance(rows, Tensor) else torch.cat([squares(row[None]) for row in rows]))
    for i in torch.nonzero(total < TINY).flatten().tolist():
        total[i] = host(row64(rows[i]).square().sum())
    return total


def norms(gram_matrix: Tensor) -> Tensor:
    """Euclidean norms [n] from a Gram matrix."""
    return gram_matrix.diagonal().clamp_min(0).sqrt()


def angles(gram_matrix: Tensor) -> Tensor:
    """Angles [n, n] in radians, arccos(<x_i, x_j> / |x_i||x_j|); pi/2 between a zero vector and any other."""
    length = norms(gram_matrix)
    zero = length == 0
    unit = torch.where(zero, 1.0, length)
    theta = (gram_matrix / unit[:, None] / unit[None, :]).clamp(-1, 1).arccos()
    theta[zero, :] = math.pi / 2
    theta[:, zero] = math.pi / 2
    theta.fill_diagonal_(0)
    return theta


def mean_angles(gram_matrix: Tensor) -> Tensor:
    """Mean angle [n] of each row to the n - 1 others (0 for a single row), from a Gram matrix."""
    n = gram_matrix.shape[0]
    theta = angles(gram_matrix)
    return (theta.sum(1) - theta.diagonal()) / max(n - 1, 1)


def squared_distances(gram_matrix: Tensor) -> Tensor:
    """Squared Euclidean distances [n, n]: |x_i|² + |x_j|² - 2 <x_i, x_j>."""
    square = gram_matrix.diagonal()
    distance = (square[:, None] + square[None, :] - 2 * gram_matrix).clamp_min(0)
    distance.fill_diagonal_(0)
    return distance


def device_of(rows: Rows) -> torch.device:
    """Where the rows are; the host's if there are none."""
    if isinstance(rows, Tensor | SplitRows):
        return rows.device
    return rows[0].device if rows else CPU


def _wide(rows: Rows) -> int:
    """Columns per block: many chunks at once, while the [chunks, n, n] products and copies of vectors stay small."""
    n, d = max(len(rows), 1), dimension(rows)
    if isinstance(rows, Tensor) or (isinstance(rows, SplitRows) and rows.whole):
        return block_width(n)
    return CHUNK * max(1, min(BLOCK_BYTES // 2, n * d // 2) // (4 * n * CHUNK))


def _refined(rows: Rows, total: Tensor) -> Tensor:
    """`total` with the entries that float32 gets wrong computed in float64."""
    square = total.diagonal()
    fine = square.isfinite()
    tiny = fine & (square < TINY)
    if tiny.any():
        some, others = tiny.nonzero().flatten(), fine.nonzero().flatten()
        exact = _products64(rows, some.tolist(), others.tolist())
        total[some[:, None], others] = exact
        total[others[:, None], some] = exact.T
        square = total.diagonal()
    bound = PARALLEL**2 * square[:, None] * square[None, :]
    close = (total.square() > bound) & (bound > 0) & bound.isfinite()
    close.fill_diagonal_(False)
    if close.any():
        some = close.any(1).nonzero().flatten()
        total[some[:, None], some] = _products64(rows, some.tolist(), some.tolist())
    return total


def _products64(rows: Rows, left: list[int], right: list[int]) -> Tensor:
    """Inner products in float64 of some rows with others, block by block."""
    total = exact_zeros(device_of(rows), len(left), len(right))
    width = max(CHUNK, BLOCK_BYTES // (32 * (len(left) + len(right))))
    for start in range(0, dimension(rows), width):
        a = _columns64(rows, left, start, width)
        b = a if left == right else _columns64(rows, right, start, width)
        total += a @ b.T
    return told(total)


def _columns64(rows: Rows, some: list[int], start: int, width: int) -> Tensor:
    if isinstance(rows, SplitRows):
        return row64(rows.block(start, min(rows.d, start + width), some))
    return torch.stack([row64(rows[i][start : start + width]) for i in some])
