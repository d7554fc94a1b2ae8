"""One run, as every executor computes it: never raises but for a stop, and says in one line what went wrong."""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scapegoat.errors import DeviceMemoryError, ScapegoatError, StorageError
from scapegoat.experiments.executors.heartbeat import Heartbeat
from scapegoat.experiments.store import RunStore

if TYPE_CHECKING:
    from scapegoat.federation import RoundRecord

ROUND_SECONDS = 0.5

# `(rounds done, attack accuracy, test accuracy)`; called now and then, and after the last round.
OnRound = Callable[[int, float | None, float | None], None]


def compute(
    name: str,
    spec: Mapping[str, Any],
    store: RunStore,
    *,
    root: str | Path | None,
    checkpoint_seconds: float,
    on_round: OnRound | None = None,
    check: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Compute a run into the store and return `{"kind": "finished", "summary"}` or `{"kind": "failed", "reason", ...}`.

    `check` is called after every round and may raise KeyboardInterrupt: the state is whole then, and is saved.
    """
    from scapegoat import devices
    from scapegoat.experiments.run import run

    heartbeat = Heartbeat(store, name, spec)
    heartbeat.start()
    told = 0.0

    def progress(record: RoundRecord, rounds: int) -> None:
        nonlocal told
        if check is not None:
            check()
        done = record.round + 1
        heartbeat.beat(done, rounds)
        if on_round is not None and (done == rounds or time.monotonic() - told >= ROUND_SECONDS):
            told = time.monotonic()
            on_round(done, record.attack_accuracy, record.test_accuracy)

    try:
        result = run(spec, store=store, root=root, progress=progress, checkpoint_seconds=checkpoint_seconds)
    except StorageError as error:
        reason = f"{store.directory}: runs can no longer be written ({_cause(error)})"
        return {"kind": "failed", "reason": reason, "storage": True}
    except DeviceMemoryError as error:
        return {**_failed(heartbeat, str(error)), "memory": True}
    except ScapegoatError as error:
        return _failed(heartbeat, str(error))
    except Exception as error:
        return _failed(heartbeat, f"{type(error).__name__}: {error}")
    finally:
        devices.release(str(spec.get("device", "cpu")))
    if result.spec.hash != name:
        return _failed(heartbeat, "its data file changed while the sweep was running; start the sweep again")
    return {"kind": "finished", "summary": result.summary}


def _failed(heartbeat: Heartbeat, reason: str) -> dict[str, Any]:
    line = " ".join(reason.split())
    heartbeat.failed(line, traceback.format_exc())
    return {"kind": "failed", "reason": line, "storage": False}


def _cause(error: StorageError) -> str:
    """The system's words for it; libraries wrap them in words of their own."""
    words = f"{error} {error.__cause__}"
    number = re.search(r"(?:errno|os error) (\d+)", words, re.IGNORECASE)
    return os.strerror(int(number[1])) if number else " ".join(str(error.__cause__ or error).split())
