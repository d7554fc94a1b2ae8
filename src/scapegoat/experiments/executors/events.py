"""What an executor tells while it works, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from scapegoat.experiments.spec import Spec

Kind = Literal["skipped", "started", "round", "finished", "failed", "retried"]


@dataclass(frozen=True)
class Event:
    """Something happened to a run; delivered in the driver, in the order in which it happened there.

    `skipped`: it was finished before, `summary` is read back. `round`: `round` rounds are done (sent now and then, not
    for every round). `retried`: its worker died, it goes on from its checkpoint. `failed`: `reason` says why.
    """

    kind: Kind
    name: str
    spec: Spec
    round: int = 0
    attack_accuracy: float | None = None
    test_accuracy: float | None = None
    summary: dict[str, Any] | None = None
    reason: str = ""


OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Failure:
    """A run that could not be computed."""

    name: str
    spec: Spec
    reason: str


@dataclass
class Outcome:
    """What became of the specs, by the name (hash) of the run.

    `summaries` holds the finished ones, `failures` those that were tried in vain, `left` those that were not tried
    because of `stopped`, a reason that concerns them all (the disk is full). Of `unsealed` ones, which were there
    before, nothing vouches for the tables.
    """

    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    stopped: str = ""
    unsealed: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Every run is there."""
        return not self.failures and not self.left
