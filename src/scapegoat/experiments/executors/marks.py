"""Small files beside a run's checkpoint that tell other processes how it fares: which run, how far, failed and why."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scapegoat.experiments.store import RunStore

HEARTBEAT_SECONDS = 5.0
SILENT_SECONDS = 120.0


@dataclass(frozen=True)
class Mark:
    """What is known about a run that is not finished. `running` is False for one that was stopped or killed."""

    round: int = 0
    rounds: int = 0
    seconds: float = 0.0
    running: bool = False
    failed: str = ""


class Heartbeat:
    """Written by whoever computes a run, every few seconds."""

    def __init__(self, store: RunStore, name: str, spec: Mapping[str, Any]) -> None:
        self._store, self._name = store, name
        self._spec = spec
        self._last = 0.0

    def start(self) -> None:
        """The run is tried, perhaps again."""
        if not self._store.has(self._name):
            with contextlib.suppress(OSError):
                (self._store.part(self._name) / "error.json").unlink(missing_ok=True)
            _write(self._store, self._name, "spec.json", self._spec)

    def beat(self, done: int, rounds: int) -> None:
        """Say that `done` rounds are done; silently does nothing where the store cannot be written."""
        now = time.time()
        if now - self._last < HEARTBEAT_SECONDS and done < rounds:
            return
        self._last = now
        mark = {"round": done, "rounds": rounds, "time": now, "pid": os.getpid(), "host": socket.gethostname()}
        _write(self._store, self._name, "progress.json", mark)

    def failed(self, reason: str, traceback: str) -> None:
        """Leave the reason why the run failed."""
        _write(self._store, self._name, "error.json", {"error": reason, "traceback": traceback, "time": time.time()})


def read(store: RunStore, name: str) -> Mark:
    """The mark of a run that is not finished."""
    failed = _read(store, name, "error.json")
    progress = _read(store, name, "progress.json")
    done, rounds = int(progress.get("round", 0)), int(progress.get("rounds", 0))
    if failed:
        return Mark(done, rounds, failed=str(failed.get("error", "")) or "unknown")
    return Mark(done, rounds, running=bool(progress) and _alive(progress))


def _alive(progress: dict[str, Any]) -> bool:
    if progress.get("host") != socket.gethostname():
        return time.time() - float(progress.get("time", 0)) < SILENT_SECONDS
    try:
        os.kill(int(progress["pid"]), 0)
    except PermissionError:
        return True
    except (OSError, KeyError, ValueError):
        return False
    return True


def _write(store: RunStore, name: str, file: str, value: Mapping[str, Any]) -> None:
    part = store.part(name)
    temporary = part / f"{file}.{os.getpid()}.tmp"
    with contextlib.suppress(OSError):
        part.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(value), encoding="utf-8")
        os.replace(temporary, part / file)


def _read(store: RunStore, name: str, file: str) -> dict[str, Any]:
    try:
        value = json.loads((store.part(name) / file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
