"""Data sets: one reader a file, for the files as they are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scapegoat.data.base import Dataset, DataSpec, get, register, registry
from scapegoat.data.files.locate import roots

__all__ = ["Dataset", "DataSpec", "get", "load", "register", "registry", "roots"]


def load(name: str, root: str | Path | None = None, **options: Any) -> Dataset:
    """A data set by name and options, from files below `root`, SCAPEGOAT_DATA or ./data."""
    return get(name, **options).read(roots(root))
