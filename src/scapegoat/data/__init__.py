"""Data sets: one reader per file, for the files as they are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scapegoat.data.base import Dataset, DataSpec, get, register, registry
from scapegoat.data.files.locate import roots

__all__ = ["Dataset", "DataSpec", "get", "load", "register", "registry", "roots"]


def load(name: str, root: str | Path | None = None, **options: Any) -> Dataset:
    """A data set by name and options.

    Parameters
    ----------
    name: `hospital`, `location30`, ... (`scapegoat list data`), a file of your own (`records.csv`), or `kind:PATH`.
    root: folder with its files; SCAPEGOAT_DATA and ./data are searched too.
    options: its options, as `scapegoat list data NAME` shows them.

    Returns
    -------
    The records and labels. Files that are missing or damaged are a DataError that says what is expected where.

    Examples
    --------
    >>> records = load("hospital", records=700, features=40, classes=4)
    >>> len(records), records.input_shape, records.classes
    (700, (40,), 4)
    """
    return get(name, **options).read(roots(root))
