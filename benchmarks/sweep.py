"""A sweep with one worker process and with two, in turn, start-up included."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.timing import log
from scapegoat.experiments.executors import cores, named
from scapegoat.experiments.executors.events import Outcome
from scapegoat.experiments.executors.processes import ProcessPool
from scapegoat.experiments.executors.run_queue import RunQueue
from scapegoat.experiments.run import CHECKPOINT_SECONDS
from scapegoat.experiments.spec import Spec
from scapegoat.experiments.store import RunStore


def run(quick: bool = False) -> dict[str, Any]:
    """Seconds of the same sweep by number of workers, and how many times as fast two are."""
    runs, rounds, repeats = (4, 10, 1) if quick else (12, 60, 3)
    specs = named({"seed": seed, "federation": {"rounds": rounds}, "defense": {"name": "atm"}} for seed in range(runs))
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for workers in seconds:
            log.info("a sweep with %d worker%s", workers, "s" if workers > 1 else "")
            seconds[workers].append(_sweep(specs, workers))
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    return {
        "runs": runs,
        "rounds": rounds,
        "cores": cores(),
        "one_worker_seconds": statistics.median(seconds[1]),
        "two_workers_seconds": statistics.median(seconds[2]),
        "two_workers_times_as_fast": statistics.median(ratios),
        "each_repeat": ratios,
    }


def _sweep(specs: dict[str, Spec], workers: int) -> float:
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="scapegoat-bench-") as folder:
        store = RunStore(Path(folder))
        begun = time.perf_counter()
        with ProcessPool(store, jobs=workers, root=None, checkpoint_seconds=CHECKPOINT_SECONDS) as pool:
            pool.work_off(RunQueue(specs, outcome, None))
        seconds = time.perf_counter() - begun
    if len(outcome.summaries) != len(specs):
        raise RuntimeError(f"a run of the benchmark failed: {outcome.failures}")
    return seconds
