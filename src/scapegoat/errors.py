"""The errors a person can do something about."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any


class ScapegoatError(Exception):
    """Base of every error that scapegoat raises on purpose."""


class InputError(ScapegoatError, ValueError):
    """The input was wrong. One line: what is wrong, where, and what is expected (exit code 2)."""

    def _render_traceback_(self) -> list[str]:
        """What IPython and notebooks show instead of all our frames: one line, as on the command line."""
        return [f"{type(self).__name__}: {self}"]


class OptionError(InputError):
    """An option of a component was wrong; `path` says which, relative to the component."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(f"{path}: {message}" if path else message)


class DataError(InputError):
    """A data set is missing, damaged or not what it claims to be."""


class RunError(ScapegoatError, RuntimeError):
    """A run failed although its input was right (exit code 1)."""


class StorageError(RunError):
    """A run could not be written: the disk is full, or the store read-only. Other runs would fail as well."""


class DeviceMemoryError(RunError):
    """A run asked for more memory than its device, or the machine, had left. Alone it may fit."""


class PolicyError(ScapegoatError):
    """A policy was not met. One line per demand that was violated or cannot be shown to hold (exit code 3)."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("; ".join(self.lines))


class Stopped(KeyboardInterrupt):
    """Ctrl-C, with one line on what is saved and how to go on."""


def shown(value: Any) -> str:
    """A value of a user's, for a message: as Python writes it, but no longer than a line holds."""
    try:
        return _short.repr(value)
    except ValueError:
        return f"a {type(value).__name__} of thousands of digits"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """For a message about an unknown name: `, did you mean 'hospital'?`, or nothing where no known one is like it."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return f", did you mean {shown(close[0])}?" if close else ""


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120
_short.maxlong = 60
_short.maxlevel = 4
_short.maxlist = _short.maxtuple = _short.maxdict = 8
