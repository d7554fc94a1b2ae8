"""Errors of a user's code, told in one line."""

from __future__ import annotations

import sysconfig
import textwrap
import traceback
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_LONGEST = 300


def explained(error: BaseException) -> str:
    """What the error says, and the innermost line of the user's own code that it came through."""
    if isinstance(error, SystemExit):
        return f"sys.exit({'' if error.code is None else repr(error.code)}){where(error)}"
    message = textwrap.shorten(str(error), _LONGEST, placeholder=" ...")
    said = f"{type(error).__name__}: {message}" if message else type(error).__name__
    # A syntax error's own message already says where.
    return said if isinstance(error, SyntaxError) else said + where(error)


def in_user_code(error: BaseException) -> bool:
    """Whether the error came through code that is neither ours nor installed."""
    return bool(where(error))


def installed(path: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return path.is_relative_to(sysconfig.get_path("stdlib"))


def where(error: BaseException) -> str:
    """In brackets, the innermost line of the user's own code that an error came through; nothing if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not (frame.filename.startswith("<frozen") or path.is_relative_to(_PACKAGE) or installed(path)):
            return f" ({path.name}, line {frame.lineno})"
    return ""
