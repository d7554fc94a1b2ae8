"""What is wrong with a stranger's reply, said on one line."""

from __future__ import annotations

from typing import Any

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]


class MalformedReplyError(ValueError):
    """A reply that cannot be used; the message says why in a few words."""


def plain(text: object, length: int = 200) -> str:
    """A stranger's words on one line that fits a log."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * length]).split())
    return line if len(line) <= length else line[: length - 3] + "..."


def fault(error: Exception) -> str:
    """Why a reply cannot be used, whatever went wrong while it was read."""
    if isinstance(error, MalformedReplyError):
        return plain(error)
    return plain(f"something that cannot be read ({type(error).__name__}: {error})")
