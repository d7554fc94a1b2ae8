"""The driver's book: which runs wait, which are under way, how often a worker died over them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from scapegoat.experiments.executors.events import Event, Failure, OnEvent, Outcome
from scapegoat.experiments.spec import Spec

DEATHS_WITHOUT_PROGRESS = 5


class RunQueue:
    """Hands out runs and keeps the score, the same for every executor.

    A run whose worker died is handed out again, until its workers died `DEATHS_WITHOUT_PROGRESS` times in a row without
    getting a round further than before: then the run itself is to blame (it needs more memory than there is). One that
    ran out of memory beside others is tried once more when all others are done, alone.
    """

    def __init__(self, specs: Mapping[str, Spec], outcome: Outcome, on_event: OnEvent | None) -> None:
        self.specs = specs
        self.outcome = outcome
        self._on_event = on_event
        self._waiting = deque(specs)
        self._under_way: set[str] = set()
        self._alone: deque[str] = deque()
        self._lonely: set[str] = set()
        self._deaths: dict[str, int] = {}
        self._furthest: dict[str, int] = {}

    @property
    def waiting(self) -> int:
        """Runs that somebody could begin with now."""
        if self.outcome.stopped:
            return 0
        return len(self._waiting) or (1 if self._alone and not self._under_way else 0)

    @property
    def open(self) -> bool:
        """Something is still to be done or waited for."""
        return bool(self.waiting or self._under_way)

    def _next(self) -> str:
        if self._waiting:
            return self._waiting.popleft()
        name = self._alone.popleft()
        self._lonely.add(name)
        return name

    def take(self, *, starts: bool = True) -> str | None:
        """The next run to compute, if any; `starts` is False if it only goes into somebody else's queue."""
        if not self.waiting:
            return None
        name = self._next()
        self._under_way.add(name)
        if starts:
            self._tell("started", name)
        return name

    def started(self, name: str) -> None:
        """A queued run has a worker now."""
        self._tell("started", name)

    def round(self, name: str, done: int, attack_accuracy: float | None, test_accuracy: float | None) -> None:
        """`done` rounds of a run are done."""
        if done > self._furthest.get(name, 0):
            self._furthest[name] = done
            self._deaths[name] = 0
        self._tell("round", name, round=done, attack_accuracy=attack_accuracy, test_accuracy=test_accuracy)

    def settle(self, name: str, reply: Mapping[str, Any]) -> None:
        """Take down what a worker says about a run that it ended."""
        if reply["kind"] == "finished":
            self._under_way.discard(name)
            self.outcome.summaries[name] = reply["summary"]
            self._tell("finished", name, round=reply["summary"]["rounds"], summary=reply["summary"])
            return
        if reply.get("storage"):
            # The run is not to blame, and no other could be written either: stop handing out, say so once.
            self._under_way.discard(name)
            self._waiting.append(name)
            self.outcome.stopped = self.outcome.stopped or reply["reason"]
            return
        if reply.get("memory") and name not in self._lonely and len(self.specs) > 1:
            self._under_way.discard(name)
            self._alone.append(name)
            self._tell("retried", name, reason=f"{reply['reason']}; tried again alone")
            return
        self.fail(name, reply["reason"])

    def fail(self, name: str, reason: str) -> None:
        """A run cannot be computed."""
        self._under_way.discard(name)
        self.outcome.failures[name] = Failure(name, self.specs[name], reason)
        self._tell("failed", name, reason=reason)

    def died(self, name: str, why: str) -> None:
        """The worker of a run is gone: hand the run out again, first of all, or give it up."""
        self._under_way.discard(name)
        deaths = self._deaths[name] = self._deaths.get(name, 0) + 1
        if deaths >= DEATHS_WITHOUT_PROGRESS:
            self.fail(name, f"{deaths} workers in a row died over it without getting any further ({why})")
            return
        self._waiting.appendleft(name)
        self._tell("retried", name, reason=why)

    def close(self) -> Outcome:
        """The outcome, with what was left."""
        self.outcome.left = [*self._under_way, *self._waiting, *self._alone]
        return self.outcome

    def _tell(self, kind: Any, name: str, **fields: Any) -> None:
        if self._on_event is not None:
            self._on_event(Event(kind, name, self.specs[name], **fields))
