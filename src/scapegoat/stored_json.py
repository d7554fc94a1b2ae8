"""JSON that may have been damaged or made up: read within limits, or refused with a reason of one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LARGEST_FILE = 32 << 20
DEEPEST = 64
LARGEST_NUMBER = 1e15
"""Beyond any count, time or figure; far from where sums and squares would overflow."""


def read(path: Path, largest: float = LARGEST_NUMBER) -> dict[str, Any]:
    """The object in a file. OSError if it cannot be read; ValueError if it is not what we write."""
    return loads(read_bytes(path), largest)


def read_bytes(path: Path, limit: int = LARGEST_FILE) -> bytes:
    """The content of a regular file; a device or a pipe would never end."""
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} is missing")
    with path.open("rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path.name} is larger than {limit >> 20} MB")
    return data


def loads(data: bytes, largest: float = LARGEST_NUMBER) -> dict[str, Any]:
    """The object in these bytes: not nested deeply, its numbers finite and at most `largest`, its text whole."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (line {error.lineno})") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("is not JSON (not text)") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    check(value, largest)
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"holds {name}, which is not a number")


def check(value: Any, largest: float = LARGEST_NUMBER) -> None:
    """Refuse, with a ValueError, values beyond the limits."""
    # Level by level, so that no depth can exhaust the stack.
    level = [value]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                below += node.keys()
                below += node.values()
            elif isinstance(node, list):
                below += node
            elif isinstance(node, str):
                if not node.isascii():
                    _whole_text(node)
            elif isinstance(node, int | float) and not abs(node) <= largest:  # NaN is never
                raise ValueError("holds a number that is out of range")
        if not below:
            return
        level = below
    raise ValueError("is nested too deeply")


def _whole_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("holds text that is not Unicode") from None
