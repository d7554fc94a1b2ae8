"""Order statistics of every coordinate by a sorting network, in place of a sort.

A sorting network is a fixed list of comparators (i, j): put the smaller value on wire i and the larger on wire j. Run
on whole blocks of coordinates at once, a comparator is one `minimum` and one `maximum` of two vectors, without a
branch. What is needed here is the mean of the middle n - 2b values of n, so most of a sorting network is not needed:
comparators between two wires that are both dropped, or both summed, fall away, and so does the half of a comparator
that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from scapegoat.combining.stack import Stack

Comparator = tuple[int, int]
Step = tuple[int, int, bool, bool]

NARROW, WIDE, CACHED = 1 << 14, 1 << 17, 100 << 17
"""Columns at a time: enough to be worth an operation and its threads, few enough for n of them to stay in cache."""


def middle_mean(stack: Stack, drop: int) -> Tensor:
    """Mean [d] of the n - 2·drop middle values of every coordinate; with drop = (n-1)//2, the median."""
    if drop == 0:
        return stack.mean()
    steps = plan(len(stack), drop)
    return column_blocks(stack, lambda wires, free, out: _sum_middle(_run(wires, steps, free), drop, out))


def column_blocks(stack: Stack, work: Callable[[list[Tensor], list[Tensor], Tensor], None]) -> Tensor:
    """A vector [d] made block by block: `work` gets n vectors of columns, n + 2 buffers as long, and the target."""
    out = torch.empty(stack.d)
    width = max(NARROW, min(WIDE, CACHED // len(stack), stack.d // 16))
    buffers = torch.empty(len(stack) + 2, min(width, stack.d)).unbind(0)
    for start in range(0, stack.d, width):
        target = out[start : start + width]
        work(stack.columns(start, start + len(target)), [buffer[: len(target)] for buffer in buffers], target)
    return out


def in_order(wires: list[Tensor], free: list[Tensor]) -> list[Tensor]:
    """n vectors sorted coordinate by coordinate, in the n + 2 buffers given."""
    return _run(wires, _whole(len(wires)), free)


def _run(wires: list[Tensor], steps: tuple[Step, ...], free: list[Tensor]) -> list[Tensor]:
    owned = [False] * len(wires)
    for i, j, low, high in steps:
        a, b = wires[i], wires[j]
        if low:
            wires[i] = torch.minimum(a, b, out=free.pop())
        if high:
            wires[j] = torch.maximum(a, b, out=free.pop())
        # The inputs are read for the last time here: both wires hold something new, or nothing that is read again.
        if owned[j]:
            free.append(b)
        if owned[i]:
            free.append(a)
        owned[i], owned[j] = low, high
    return wires


def _sum_middle(wires: list[Tensor], drop: int, out: Tensor) -> None:
    middle = wires[drop : len(wires) - drop]
    out.copy_(middle[0])
    for wire in middle[1:]:
        out.add_(wire)
    out.mul_(1 / len(middle))


@lru_cache(maxsize=256)
def plan(n: int, drop: int) -> tuple[Step, ...]:
    """Comparators (i, j, smaller wanted, larger wanted) that leave the middle values on wires drop..n-drop-1."""
    candidates = (_pruned(_merge_sort(n), n, drop), _pruned(_peeling(n, drop), n, drop))
    return min(candidates, key=operations)


@lru_cache(maxsize=64)
def _whole(n: int) -> tuple[Step, ...]:
    return tuple((i, j, True, True) for i, j in _merge_sort(n))


def operations(steps: tuple[Step, ...]) -> int:
    """Vector operations that the comparators cost."""
    return sum(low + high for _, _, low, high in steps)


def _pruned(comparators: list[Comparator], n: int, drop: int) -> tuple[Step, ...]:
    dropped, summed, read = 0, 1, 2
    need = [summed if drop <= i < n - drop else dropped for i in range(n)]
    steps: list[Step] = []
    for i, j in reversed(comparators):
        if need[i] == need[j] != read:
            continue
        steps.append((i, j, need[i] != dropped, need[j] != dropped))
        need[i] = need[j] = read
    return tuple(reversed(steps))


def _merge_sort(n: int) -> list[Comparator]:
    """Batcher's odd-even merge sort for any n (Knuth, TAOCP 3, 5.2.2, Algorithm M)."""
    comparators: list[Comparator] = []
    top = 1
    while top < n:
        top *= 2
    p = top // 2
    while p > 0:
        q, r, gap = top // 2, 0, p
        while True:
            comparators += [(i, i + gap) for i in range(n - gap) if i & p == r]
            if q == p:
                break
            gap, q, r = q - p, q // 2, p
        p //= 2
    return comparators


def _peeling(n: int, drop: int) -> list[Comparator]:
    """Carry the largest to the end and the smallest to the front, `drop` times: little work if that is few times.

    Each time all wires meet in pairs first; the largest is then found among the winners, the smallest among the losers.
    """
    comparators: list[Comparator] = []
    for k in range(drop):
        pairs = (n - 2 * k) // 2
        comparators += [(k + t, n - k - pairs + t) for t in range(pairs)]
        left = n - 2 * k - pairs
        comparators += [(i, i + 1) for i in range(n - k - left, n - k - 1)]
        comparators += [(i, i + 1) for i in range(k + left - 2, k - 1, -1)]
    return comparators
