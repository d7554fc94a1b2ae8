"""The errors a person can do something about."""

from __future__ import annotations


class ScapegoatError(Exception):
    """Base of every error that scapegoat raises on purpose."""


class InputError(ScapegoatError, ValueError):
    """The input was wrong. One line: what, where, and what would be right (exit code 2)."""


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
    """A run could not be written: the disk is full, or the store read-only. Other runs would fare no better."""
