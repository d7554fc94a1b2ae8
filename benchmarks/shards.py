"""One federation in shards on this machine: the most memory that any process takes, and how long a round takes.

The shards' columns of all updates count as their memory, also where files stand for it (on a machine that has less than
twice as much free). What they send each other passes through Ray's object store, which is shared memory and counts for
every process that has looked at it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.timing import log
from scapegoat.data.formats.memory import available
from scapegoat.data.formats.safe_io import human
from scapegoat.experiments.run import run as run_spec
from scapegoat.experiments.spec import parse

SHARDS = 4
LARGEST = 6e9
"""Bytes that no process may pass."""


def spec(clients: int, defense: str) -> Any:
    """One round of so many clients with 3.2 million parameters each and a few records."""
    return {
        "data": {"name": "hospital", "records": 5 * clients + 1000, "features": 6170, "classes": 100},
        "federation": {"clients": clients, "fraction": 1.0, "rounds": 1, "batch_size": 32},
        "attack": {"name": "passive", "targets": 100, "mask": 100},
        "defense": defense,
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Peak memory per process of one round in shards; with `quick` of fewer clients, beside the run in one process."""
    clients = 40 if quick else 1000
    wanted = spec(clients, "atm")
    log.info("a round of %d clients in %d shards", clients, SHARDS)
    found: dict[str, int] = {}
    free = available()
    begun = time.perf_counter()
    # After the round the shards are still there.
    result = run_spec(wanted, shards=SHARDS, progress=lambda *_: found.update(peaks()))
    seconds = time.perf_counter() - begun
    parameters = 6170 * 512 + 512 + 512 * 128 + 128 + 128 * 100 + 100
    largest = max(found.values())
    figures: dict[str, Any] = {
        "clients": parse(wanted).federation.picked,
        "parameters": parameters,
        "shards": SHARDS,
        "free_before": human(free),
        "updates": human(4.0 * clients * parameters),
        "seconds_with_start": seconds,
        "seconds_of_the_round": result.summary["seconds"],
        "peaks": {name: human(peak) for name, peak in sorted(found.items(), key=lambda item: -item[1])[:8]},
        "largest_process": human(largest),
        "bound": human(LARGEST),
        "holds": largest <= LARGEST,
    }
    if quick:
        alone = run_spec(wanted)
        figures["same_as_one_process"] = alone.rounds.equals(result.rounds) and alone.targets.equals(result.targets)
    return figures


def peaks() -> dict[str, int]:
    """The largest resident memory so far of this process and of all that it has started, in bytes."""
    own, found = psutil.Process(), {}
    for process in [own, *own.children(recursive=True)]:
        try:
            name = "driver" if process.pid == own.pid else process.name().partition(".")[0]
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except (psutil.Error, OSError):
            continue
        peak = next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)
        found[f"{name} {process.pid}"] = peak
    return found
