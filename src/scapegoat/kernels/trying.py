"""Of several ways to do the same to the bit, the one that is fastest on this machine and for this size.

Only for ways between which nobody can tell by their results: what is chosen is neither kept nor recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, ParamSpec

P = ParamSpec("P")

TRIES = 5
"""Pieces of work in which each way shows how fast it is, before the fastest does all others."""

Clock = Callable[[], float]


class Trial:
    """Which of some ways, by their places, does the next piece of work; found out on the work itself, size by size."""

    def __init__(self) -> None:
        self._seconds: dict[Hashable, list[list[float]]] = {}
        self._chosen: dict[Hashable, int] = {}

    def settled(self, size: Hashable) -> int | None:
        """The place of the fastest, once that is known."""
        return self._chosen.get(size)

    def turn(self, size: Hashable, ways: int) -> int:
        """Whose turn it is to be tried."""
        seconds = self._seconds.setdefault(size, [[] for _ in range(ways)])
        return min(range(ways), key=lambda place: len(seconds[place]))

    def note(self, size: Hashable, place: int, seconds: float) -> None:
        """What the one whose turn it was took, for as much work as the others."""
        tried = self._seconds[size]
        tried[place].append(seconds)
        if all(len(pieces) >= TRIES for pieces in tried):
            least = [min(pieces) for pieces in self._seconds.pop(size)]
            self._chosen[size] = least.index(min(least))


class Tried(Generic[P]):
    """Calls one of the functions: each in turn at first, then the one that was fastest for the size of the work."""

    def __init__(self, *functions: Callable[P, None], clock: Clock = time.perf_counter) -> None:
        self._functions, self._clock, self._trial = functions, clock, Trial()

    def __call__(self, size: Hashable, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Do the work, which is of this size."""
        chosen = self._trial.settled(size)
        if chosen is not None:
            self._functions[chosen](*args, **kwargs)
            return
        place = self._trial.turn(size, len(self._functions))
        started = self._clock()
        self._functions[place](*args, **kwargs)
        self._trial.note(size, place, self._clock() - started)
