"""Where the files of a data set are looked for, and what is wanted where they are missing."""

from __future__ import annotations

import os
from pathlib import Path


def roots(root: str | Path | None = None) -> list[Path]:
    """The folders that are searched, in this order: `root`, SCAPEGOAT_DATA (one or several, as in PATH), ./data."""
    named = [str(root)] if root is not None else []
    named += [part for part in os.environ.get("SCAPEGOAT_DATA", "").split(os.pathsep) if part]
    found = [Path(part).expanduser() for part in [*named, "data"]]
    return list(dict.fromkeys(found))
