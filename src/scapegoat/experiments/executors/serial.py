"""One run after the other, in this process."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scapegoat.experiments.executors.job import compute
from scapegoat.experiments.executors.run_queue import RunQueue
from scapegoat.experiments.store import RunStore


def work_off(queue: RunQueue, store: RunStore, *, root: str | Path | None, checkpoint_seconds: float) -> None:
    """Compute every run of the queue. Ctrl-C waits for the end of the round, saves it and raises KeyboardInterrupt."""
    with after_the_round() as check:
        while (name := queue.take()) is not None:

            def on_round(done: int, attack: float | None, test: float | None, name: str = name) -> None:
                queue.round(name, done, attack, test)

            reply = compute(
                name,
                queue.specs[name].canonical(),
                store,
                root=root,
                checkpoint_seconds=checkpoint_seconds,
                on_round=on_round,
                check=check,
            )
            queue.settle(name, reply)


@contextlib.contextmanager
def after_the_round() -> Iterator[Callable[[], None]]:
    """A function that raises KeyboardInterrupt if Ctrl-C was pressed since. A second Ctrl-C interrupts at once."""
    asked = False
    previous = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and previous is signal.default_int_handler

    def interrupt(_signal: int, _frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, previous)

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield check
    finally:
        if ours:
            signal.signal(signal.SIGINT, previous)
    check()
