"""How much memory a call needs at its peak."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile


def extra_memory(function: Callable[[], Any], stacked: int) -> float | None:
    """Peak resident memory above that before the call, as a share of the stacked updates (None where Linux is not)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    trim_heap()
    before = _kilobytes(status, "VmRSS")
    peak = before
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.0005):
            peak = max(peak, _kilobytes(status, "VmRSS"))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        answer = function()
        peak = max(peak, _kilobytes(status, "VmRSS"))
        del answer
    finally:
        done.set()
        watcher.join()
    return max(0, peak - before) * 1024 / stacked


def peak_of_tensors(function: Callable[[], Any]) -> int:
    """Bytes of the tensors that a call has alive at its peak, above those before it: exact, and the same every time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    assert profiler.profiler is not None
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    sizes = (event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return max(itertools.accumulate(sizes), default=0)


def _kilobytes(status: Path, field: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1])


def trim_heap() -> None:
    """Give freed memory back first: reuse of it would hide what a call needs."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
