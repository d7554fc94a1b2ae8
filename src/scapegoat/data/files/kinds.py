"""What kind of data a path without a prefix leads to: told by what is there, else by how it is called."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

_ENDINGS = {
    ".npz": "npz",
    ".parquet": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
}
_STARTS = {b"PK\x03\x04": "npz", b"PAR1": "parquet"}


def data_files(folder: Path) -> list[str]:
    """What lies in a folder and looks like data by its name, for a hint to somebody who mistyped one."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, 10_000)]
    except OSError:
        return []
    return sorted(name for name in names if name.lower().endswith(tuple(_ENDINGS)))


def kind_of(name: str, roots: list[Path]) -> str | None:
    """`npz`, `parquet`, `csv` or `images` for a path to such a file or folder; None for what is no path."""
    given = Path(name).expanduser()
    by_name = next((kind for ending, kind in _ENDINGS.items() if name.lower().endswith(ending)), None)
    for path in [given, *(root / given for root in roots)]:
        with contextlib.suppress(OSError):  # whoever reads it says what is wrong
            if path.is_dir():
                return "parquet" if any(path.glob("*.parquet")) else "images"
            if path.is_file():
                with path.open("rb") as stream:
                    return _STARTS.get(stream.read(4), by_name)
    return by_name
