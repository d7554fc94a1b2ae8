"""Progress in a notebook: one line, written over and over."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scapegoat.experiments.executors.events import Event
    from scapegoat.federation import RoundRecord

_SECONDS = 0.2


class ProgressLine:
    """How many runs are done and how far the newest one is, or how far a single one is."""

    def __init__(self) -> None:
        self.total = ""
        self._done = 0
        self._width = 0
        self._next = 0.0

    def expect(self, count: int, certain: bool) -> None:
        """There will be so many runs, or about so many."""
        self.total = f" of {'' if certain else 'about '}{count}"

    def take(self, event: Event) -> None:
        """Tell of a start, a round or an end; rounds only now and then."""
        ended = event.kind in ("finished", "skipped", "failed")
        self._done += ended
        if not ended and time.monotonic() < self._next:
            return
        rounds = event.spec.federation.rounds
        now = "" if ended else f", {event.spec.attack.name} in round {event.round} of {rounds}"
        self._write(f"{self._done}{self.total} runs done{now}")

    def show_round(self, record: RoundRecord, rounds: int) -> None:
        """Tell how far a single run is, now and then."""
        if time.monotonic() >= self._next:
            self._write(f"round {record.round + 1} of {rounds}")

    def close(self) -> None:
        """Leave no half of it behind."""
        self._write("")

    def _write(self, text: str) -> None:
        self._next = time.monotonic() + _SECONDS
        print(f"\r{text.ljust(self._width)}", end="\r" if not text else "", flush=True)
        self._width = len(text)


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this; a terminal's IPython is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def notebook_progress() -> Iterator[ProgressLine | None]:
    """A line of progress in a notebook; elsewhere None, since a script may print what it likes."""
    if not in_notebook():
        yield None
        return
    line = ProgressLine()
    try:
        yield line
    finally:
        line.close()
