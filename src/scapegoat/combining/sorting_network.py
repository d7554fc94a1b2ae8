"""Order statistics of every coordinate by a sorting network, in place of a sort.

A sorting network is a fixed list of comparators (i, j): put the smaller value on wire i and the larger on wire j. Run
on whole blocks of coordinates at once, a comparator is one `minimum` and one `maximum` of two vectors, without a
branch. What is needed here is the mean of the middle n - 2b values of n, so most of a sorting network is not needed:
comparators between two wires that are both dropped, or both summed, fall away, and so does the half of a comparator
that nobody reads.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch
from torch import Tensor

from scapegoat.combining.stack import Stack, columns_held
from scapegoat.devices import CPU
from scapegoat.kernels.trying import Trial
from scapegoat.split_rows import Held, SplitRows

Comparator = tuple[int, int]
Step = tuple[int, int, bool, bool]
Work = Callable[[list[Tensor], list[Tensor], Tensor], None]

NARROW, CACHED = 1 << 14, 100 << 17
WIDTHS = (1 << 17, 1 << 16, 1 << 15, NARROW)
"""Columns at a time: enough to be worth an operation and its threads, few enough for n of them to stay in cache.

How many that is depends on the machine and is tried; the result is the same to the bit.
"""

_TRIAL = Trial()


def middle_mean(stack: Stack, drop: int) -> Tensor:
    """Mean [d] of the n - 2·drop middle values of every coordinate; with drop = (n-1)//2, the median."""
    if drop == 0:
        return stack.mean()
    steps = comparators(len(stack), drop)
    return column_blocks(stack, lambda wires, free, out: _sum_middle(_run(wires, steps, free), drop, out))


def column_blocks(stack: Stack, work: Work) -> Tensor:
    """A vector [d] made block by block: `work` gets n vectors of columns, n + 2 buffers as long, and the target."""
    if isinstance(stack.rows, SplitRows):
        return torch.cat(stack.rows.each(functools.partial(_blocks_held, stack.scale, work)))
    out = torch.empty(stack.d, device=stack.device)
    widths = _widths(stack)
    size = (len(stack), torch.get_num_threads(), *widths)
    best = 0 if len(widths) == 1 else _TRIAL.settled(size)
    buffers = torch.empty(len(stack) + 2, min(widths[best or 0], stack.d), device=stack.device).unbind(0)
    start = 0
    while start < stack.d:
        place = _TRIAL.turn(size, len(widths)) if best is None else best
        target = out[start : start + widths[place]]
        began = time.perf_counter()
        work(stack.columns(start, start + len(target)), [buffer[: len(target)] for buffer in buffers], target)
        if best is None and len(target) == widths[place]:
            _TRIAL.note(size, place, (time.perf_counter() - began) / len(target))
            best = _TRIAL.settled(size)
        start += len(target)
    return out


def _widths(stack: Stack) -> list[int]:
    """Those to be tried, the widest first; on a device, which answers before it is done, that one only."""
    most = max(NARROW, min(CACHED // len(stack), stack.d // 16))
    widths = sorted({min(most, width) for width in WIDTHS}, reverse=True)
    return widths if stack.device == CPU else widths[:1]


def _blocks_held(scale: Tensor | None, work: Work, first: int, held: Held) -> Tensor:
    return column_blocks(columns_held(held, scale), work)


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


@functools.lru_cache(maxsize=256)
def comparators(n: int, drop: int) -> tuple[Step, ...]:
    """Comparators (i, j, smaller wanted, larger wanted) that leave the middle values on wires drop..n-drop-1."""
    candidates = (_pruned(_merge_sort(n), n, drop), _pruned(_peeling(n, drop), n, drop))
    return min(candidates, key=operations)


@functools.lru_cache(maxsize=64)
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
