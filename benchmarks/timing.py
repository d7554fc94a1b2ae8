"""Measuring on a machine that others use too: interleaved repeats, medians, ratios."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from scapegoat.heap import keep_pages

log = logging.getLogger("benchmarks")
"""Says what is being measured."""


def interleaved(functions: dict[str, Callable[[], Any]], repeats: int, warmup: int = 1) -> dict[str, float]:
    """Median seconds of each function, measured in turn so that a busy moment hits all of them.

    With one thread it is the processor's time, which others cannot add to.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(repeats + warmup):
        for name, function in functions.items():
            started = clock()
            function()
            if repeat >= warmup:
                seconds[name].append(clock() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


@contextmanager
def with_threads(wanted: int) -> Iterator[None]:
    """Let PyTorch compute with so many threads, and keep freed memory as a run does."""
    keep_pages()
    before = torch.get_num_threads()
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)
