"""Small files beside a run's checkpoint that tell other processes which run it is, how far, and why it failed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from scapegoat.experiments.store import RunStore
from scapegoat.files import write_text

HEARTBEAT_SECONDS = 5.0


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


def _write(store: RunStore, name: str, file: str, value: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        write_text(store.part(name) / file, json.dumps(value), durable=False)
