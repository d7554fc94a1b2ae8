"""How far a sweep is, as seen from outside: by the files in its store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from scapegoat.experiments.store import RunStore


@dataclass(frozen=True)
class Status:
    """Runs of a sweep by what became of them. `seconds_left` is None while nothing is known about their speed.

    `running` maps a run to its rounds done and rounds in all, `failed` and `damaged` to the reason. A run that was
    stopped half-way counts as left; it goes on where it was. `unsealed` are those of `done` that nothing vouches for.
    """

    done: tuple[str, ...] = ()
    running: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    seconds_left: float | None = None
    unsealed: int = 0

    @property
    def total(self) -> int:
        """All runs."""
        return len(self.done) + len(self.running) + len(self.failed) + len(self.damaged) + len(self.left)


def status(store: RunStore, runs: Mapping[str, str]) -> Status:
    """The status of runs, given by name with the kind (say, the attack) whose runs take about as long."""
    done: list[str] = []
    unsealed = 0
    left: list[str] = []
    running: dict[str, tuple[int, int]] = {}
    failed: dict[str, str] = {}
    damaged: dict[str, str] = {}
    stopped: dict[str, float] = {}
    seconds: dict[str, list[float]] = {}
    for name in runs:
        if store.path(name).exists():
            found = store.inspect(name)
            if problem := found.problem or found.lacking:
                damaged[name] = problem
            else:
                done.append(name)
                unsealed += not found.sealed
                seconds.setdefault(runs[name], []).append(float(found.summary["seconds"]))
            continue
        mark = store.mark(name)
        if mark.failed:
            failed[name] = mark.failed
        elif mark.running:
            running[name] = (mark.round, mark.rounds)
        else:
            left.append(name)
            stopped[name] = mark.round / mark.rounds if mark.rounds else 0.0
    remaining = {n: 1 - r / rounds if rounds else 1.0 for n, (r, rounds) in running.items()}
    remaining |= {n: 1 - share for n, share in stopped.items()}
    seconds_left = _estimate(seconds, remaining, runs, max(len(running), 1))
    return Status(tuple(done), running, failed, damaged, tuple(left), seconds_left, unsealed)


def of_plan(content: Mapping[str, Any]) -> dict[str, str]:
    """The runs of a saved plan, with their kind."""
    return {name: cell["at"].get("attack", "") for cell in content["cells"] for name in cell["runs"]}


def measured(content: Mapping[str, Any], only: Mapping[str, set[str]] | None = None) -> tuple[int, int]:
    """How many cells of a cost sweep's plan are timed, and how many there are; `only` as on the command line."""
    chosen = [c for c in content["cells"] if all(c["at"][axis] in keys for axis, keys in (only or {}).items())]
    return sum("seconds" in cell for cell in chosen), len(chosen)


def _estimate(
    seconds: Mapping[str, list[float]], remaining: Mapping[str, float], kinds: Mapping[str, str], workers: int
) -> float | None:
    if not remaining:
        return 0.0
    if not seconds:
        return None
    overall = mean(value for values in seconds.values() for value in values)
    known = {kind: mean(values) for kind, values in seconds.items()}
    return sum(share * known.get(kinds[name], overall) for name, share in remaining.items()) / workers
