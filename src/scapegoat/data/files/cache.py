"""Decoded data sets, kept so that a file is decoded once and then memory-mapped.

An entry is a folder with `x.npy`, `y.npy` and `entry.json`, named after what it was decoded from. It is written under
a temporary name and renamed, so any number of processes may decode the same file at once: the first to finish wins and
all of them read the same bytes. An entry that does not match its own checksums is thrown away and decoded again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapegoat.data.formats.safe_io import regular
from scapegoat.files import whole_folder
from scapegoat.tasking.contract import LabelKind

log = logging.getLogger("scapegoat.data")

# Below this the decoding is over before a cache would pay.
WORTH_KEEPING = 8 << 20
_FORMAT = 3
_HEAD = 1 << 16


@dataclass(frozen=True)
class Decoded:
    """What a reader makes of its files: `x` [N, ...], `y` [N] in 0..classes-1, the last `test` records set aside.

    With other `labels`, `y` is [N, classes]: zeros and ones, or numbers.

    `notes` are what the user should be told of how it was done.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    classes: int
    test: int = 0
    notes: tuple[str, ...] = ()
    labels: LabelKind = "classes"


def folder() -> Path:
    """Where entries are kept: SCAPEGOAT_CACHE, else `scapegoat` in the user's cache folder."""
    if named := os.environ.get("SCAPEGOAT_CACHE"):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "scapegoat"


def decoded(name: str, recipe: str, sources: Iterable[Path], decode: Callable[[], Decoded]) -> Decoded:
    """What `decode()` gives, from the cache if the sources are as they were when it was kept there.

    `recipe` names the reader and whatever else (options) the result depends on.
    """
    entry = folder() / f"{name}-{_key(recipe, sources)}"
    kept = _load(entry)
    if kept is not None:
        return kept
    fresh = decode()
    if fresh.x.nbytes < WORTH_KEEPING:
        return fresh
    try:
        _store(entry, fresh)
    except OSError as error:
        log.warning("%s: cannot keep the decoded records in %s (%s); they are decoded each time", name, folder(), error)
        return fresh
    return _load(entry) or fresh


def _key(recipe: str, sources: Iterable[Path]) -> str:
    state = hashlib.sha256(f"{_FORMAT}/{recipe}".encode())
    for path in sources:
        for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
            info = regular(file).stat()
            # Within a folder the names are content too: they carry the labels.
            name = file.relative_to(path).as_posix() if path.is_dir() else ""
            state.update(f"\n{name}:{info.st_size}:{info.st_mtime_ns}:".encode())
            with file.open("rb") as stream:
                state.update(stream.read(_HEAD))
    return state.hexdigest()[:24]


def _store(entry: Path, fresh: Decoded) -> None:
    # Where another process was first, its entry is as good.
    with whole_folder(entry) as building:
        np.save(building / "x.npy", np.ascontiguousarray(fresh.x), allow_pickle=False)
        np.save(building / "y.npy", fresh.y, allow_pickle=False)
        sums = {part: _checksum(building / part) for part in ("x.npy", "y.npy")}
        about = {
            "classes": fresh.classes,
            "test": fresh.test,
            "notes": fresh.notes,
            "labels": fresh.labels,
            "checksums": sums,
        }
        (building / "entry.json").write_text(json.dumps(about))


def _load(entry: Path) -> Decoded | None:
    """The entry, or None where there is none; a damaged one is removed."""
    if not entry.is_dir():
        return None
    try:
        about = json.loads((entry / "entry.json").read_text())
        for part, checksum in about["checksums"].items():
            if _checksum(entry / part) != checksum:
                raise ValueError(f"{part} has changed")
        # Copy-on-write: the records cannot be changed on disk, and torch takes them without a copy.
        x = np.load(entry / "x.npy", mmap_mode="c", allow_pickle=False)
        y = np.load(entry / "y.npy", allow_pickle=False)
        return Decoded(
            x, y, int(about["classes"]), int(about["test"]), tuple(map(str, about["notes"])), about["labels"]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the cache entry %s is damaged (%s); decoding again", entry, error)
        discard(entry)
        return None


def discard(entry: Path) -> None:
    """Remove an entry."""
    # Renamed first: another process that is about to store or load never sees a half-removed entry.
    grave = Path(tempfile.mkdtemp(prefix=f".{entry.name}-", suffix=".tmp", dir=entry.parent))
    try:
        os.rename(entry, grave / "entry")
    except OSError as error:
        log.debug("another process removed %s first: %s", entry, error)
    shutil.rmtree(grave, ignore_errors=True)


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 22):
            value = zlib.crc32(chunk, value)
    return value
