"""Sums over chunks of long rows: float32 inside a chunk, float64 from chunk to chunk.

The same sums are taken of a matrix and of rows whose columns lie apart, in the same order, so that both give the same
bits. `geometry` is what rules and attacks ask.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from scapegoat.devices import exact, host
from scapegoat.split_rows import Held, SplitRows

CHUNK = 4096
"""Length of the float32 products: short enough for their rounding, long enough for the matrix product to be fast."""

BLOCK_BYTES = 32 << 20
"""What the products of a block of columns may take."""


def block_width(n: int) -> int:
    """Columns of n rows that are summed at once: many chunks, while the [chunks, n, n] products stay small."""
    return CHUNK * max(1, BLOCK_BYTES // (4 * n * n))


def column_spans(n: int, d: int, places: int) -> list[tuple[int, int]]:
    """Columns for so many places, about as many each: whole blocks of the Gram matrix if there are enough, or chunks.

    There are fewer spans than places where there are fewer chunks.
    """
    unit = block_width(n)
    unit = unit if -(-d // unit) >= places else CHUNK
    units = -(-d // unit)
    cuts = [min(d, unit * (units * k // places)) for k in range(places + 1)]
    return [(first, last) for first, last in itertools.pairwise(cuts) if first < last]


def chunked(block: Tensor) -> Iterator[Tensor]:
    """[n, width] as batches [chunks, n, CHUNK] without a copy, then the rest as one batch of one."""
    whole = block.shape[1] // CHUNK
    if whole:
        yield torch.unflatten(block[:, : whole * CHUNK], 1, (whole, CHUNK)).transpose(0, 1)
    if block.shape[1] > whole * CHUNK:
        yield block[:, whole * CHUNK :][None]


def squares(block: Tensor) -> Tensor:
    """Squared norms of the rows [n, d], chunk by chunk in float32, their sum in float64."""
    total = exact_zeros(block.device, block.shape[0])
    for part in chunked(block):
        total += _norms_summed(torch.linalg.vector_norm(part, dim=2))
    return total


def _norms_summed(norms_of_chunks: Tensor) -> Tensor:
    """Squared norms from those of the chunks [chunks, n]."""
    return row64(norms_of_chunks).square().sum(0)


def batched_gram(block: Tensor) -> Tensor:
    """The upper triangle of the block's Gram matrix, in two strips where that saves a quarter of the products."""
    total = exact_zeros(block.device, block.shape[0], block.shape[0])
    for part in chunked(block):
        for first, found in _strips(part):
            _add_strip(total, first, found)
    return total


def _strips(part: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Products [chunks, strip, n - first] of each strip of rows, from its first on, with it and the rows after it."""
    n = part.shape[1]
    strip = n if n < 48 else -(-n // 2)
    for first in range(0, n, strip):
        left, right = part[:, first : first + strip], part[:, first:]
        yield first, torch.bmm(left, right.transpose(1, 2))


def _add_strip(total: Tensor, first: int, found: Tensor) -> None:
    total[first : first + found.shape[1], first:] += found.sum(0, dtype=total.dtype)


def gram_apart(rows: SplitRows) -> Tensor:
    """The upper triangle, summed as in one place: block by block, and inside a block all chunks at once."""
    n, width = len(rows), block_width(len(rows))
    total = torch.zeros(n, n, dtype=torch.float64)
    if all(first % width == 0 for first, _ in rows.spans):
        return rows.chain(total, _add_grams, functools.partial(_grams, width))
    # Some block lies in several places: its products are summed here, no more than a block's at a time.
    found = [piece for pieces in rows.each(functools.partial(_chunk_products, width)) for piece in pieces]
    for block in range(-(-rows.d // width)):
        summed = torch.zeros(n, n, dtype=torch.float64)
        for rest in (False, True):
            strips = [strips for at, is_rest, strips in found if (at, is_rest) == (block, rest)]
            for parts in zip(*strips, strict=True):
                _add_strip(summed, parts[0][0], torch.cat([products for _, products in parts]))
        total += summed
    return total


def _grams(width: int, first: int, held: Held) -> list[Tensor]:
    assert isinstance(held, Tensor)
    return [batched_gram(block) for block in torch.split(held, width, dim=1)]


def _add_grams(total: Tensor, first: int, grams: list[Tensor]) -> Tensor:
    for block in grams:
        total = total + block
    return total


def _chunk_products(width: int, first: int, held: Held) -> list[tuple[int, bool, list[tuple[int, Tensor]]]]:
    """Of each block of `width` columns: its number, whether it is the last, shorter chunk, the strips' products."""
    assert isinstance(held, Tensor)
    cuts = sorted({0, held.shape[1], *range(-first % width, held.shape[1], width)})
    return [
        ((first + start) // width, part.shape[2] < CHUNK, list(_strips(part)))
        for start, stop in itertools.pairwise(cuts)
        for part in chunked(held[:, start:stop])
    ]


def squares_apart(rows: SplitRows) -> Tensor:
    """The squared norms of rows whose columns lie apart, on the host."""
    found = rows.each(_chunk_norms)
    total = torch.zeros(len(rows), dtype=torch.float64)
    for rest in (False, True):
        parts = [norms for place in found for is_rest, norms in place if is_rest == rest]
        if not parts:
            continue
        of_chunks = torch.cat(parts)
        if rows.whole:
            total += told(_norms_summed(of_chunks))
        else:
            alone = [_norms_summed(of_chunks[:, i : i + 1].contiguous()) for i in range(len(rows))]
            total += told(torch.cat(alone))
    return total


def _chunk_norms(first: int, held: Held) -> list[tuple[bool, Tensor]]:
    """Norms [chunks, n] of the chunks of every row, and whether they are those of the last, shorter one."""
    if isinstance(held, Tensor):
        return [(part.shape[2] < CHUNK, torch.linalg.vector_norm(part, dim=2)) for part in chunked(held)]
    of_rows = [_chunk_norms(first, row[None]) for row in held]
    return [(parts[0][0], torch.cat([norms for _, norms in parts], 1)) for parts in zip(*of_rows, strict=True)]


def row64(row: Tensor) -> Tensor:
    """One vector in float64, or the widest type that its device has."""
    return row.to(exact(row.device))


def told(total: Tensor) -> Tensor:
    """A result for the host, in float64."""
    return host(total).to(torch.float64)


def exact_zeros(device: torch.device, *shape: int) -> Tensor:
    """Where sums over chunks begin."""
    return torch.zeros(*shape, dtype=exact(device), device=device)
