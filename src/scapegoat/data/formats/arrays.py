"""NumPy archives (.npz) without trust: no pickled objects, and nothing is allocated because a header says so."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from scapegoat.data.formats import memory
from scapegoat.data.formats.safe_io import MAX_BYTES, MOST_RECORDS, human, read_exactly, reading, regular, wrong
from scapegoat.data.labels import LONGEST_LABEL, MOST_CLASSES

# Deflate reaches 1000:1 on zeros. Sparse 0/1 records stay far below, but for a very sparse float64: what is large as
# well has to come with bytes of its own, or be stored as it is.
_BOMBS = ((64 << 20, 500), (512 << 20, 100))
_BLOCK = 1 << 24
_LONGEST_HEADER = 1 << 13
_LARGEST_DIRECTORY = 1 << 20


@dataclass(frozen=True)
class StoredArray:
    """One array of an archive: its header, and its values block by block."""

    where: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    stream: IO[bytes]

    def blocks(self) -> Iterator[NDArray[Any]]:
        """The rows in blocks of about 16 MB."""
        if self.fortran and len(self.shape) > 1:
            whole = np.empty(self.shape, self.dtype, order="F")
            flat = whole.reshape(-1, order="F").view(np.uint8)
            for start in range(0, len(flat), _BLOCK):
                part = flat[start : start + _BLOCK]
                part[:] = np.frombuffer(read_exactly(self.stream, len(part), self.where), np.uint8)  # type: ignore[arg-type]
            yield whole
            return
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        step = max(1, _BLOCK // row)
        for start in range(0, self.shape[0], step):
            rows = min(step, self.shape[0] - start)
            content = read_exactly(self.stream, rows * row, self.where)  # type: ignore[arg-type]
            yield np.frombuffer(content, self.dtype).reshape(rows, *self.shape[1:])

    def labels(self, records: int) -> NDArray[Any]:
        """All values as they are stored, refused unless they can be the labels of so many records."""
        if self.shape[0] != records:
            raise wrong(self.where, f"{records:,} records but {self.shape[0]:,} labels; there must be one each")
        if len(self.shape) > 2 or math.prod(self.shape[1:]) > MOST_CLASSES:
            raise wrong(self.where, f"labels of shape {self.shape}; expected [records] or one-hot [records, classes]")
        if self.dtype.kind in "US" and self.dtype.itemsize > 4 * LONGEST_LABEL:
            raise wrong(
                self.where, f"labels of type {self.dtype}; text of at most {LONGEST_LABEL:,} characters is expected"
            )
        # Numbering them sorts copies.
        memory.require(4 * math.prod(self.shape) * self.dtype.itemsize, self.where, f"{self.shape[0]:,} labels")
        return self._convert(self.dtype, lambda block, _: block)

    def binary(self) -> NDArray[np.uint8]:
        """All values as uint8, refused unless each is 0 or 1."""
        return self._convert(np.dtype(np.uint8), self._as_binary)

    def features(self) -> NDArray[Any]:
        """All values as uint8 where they are stored so (or as booleans), else as finite float32."""
        if self.dtype.kind not in "biuf":
            raise wrong(self.where, f"values of type {self.dtype}; numbers are expected")
        if self.dtype in (np.dtype(np.uint8), np.dtype(np.bool_)):
            return self._convert(np.dtype(np.uint8), lambda block, _: block)
        return self._convert(np.dtype(np.float32), self._as_finite)

    def tokens(self) -> NDArray[np.int64]:
        """All values as int64, refused unless they are integers from 0 on."""
        if self.dtype.kind not in "iu":
            raise wrong(self.where, f"values of type {self.dtype}; integers are expected for tokens")
        return self._convert(np.dtype(np.int64), self._as_tokens)

    def _convert(self, dtype: np.dtype[Any], convert: Any) -> NDArray[Any]:
        values = math.prod(self.shape)
        transposed = self.dtype.itemsize if self.fortran else 0
        memory.require(values * (dtype.itemsize + transposed), self.where, f"{self.shape[0]:,} records")
        out = np.empty(self.shape, dtype)
        done = 0
        for block in self.blocks():
            out[done : done + len(block)] = convert(block, done)
            done += len(block)
        return out

    def _as_binary(self, block: NDArray[Any], start: int) -> NDArray[Any]:
        bad = ~((block == 0) | (block == 1))
        if bad.any():
            row = start + _first_row(bad)
            raise wrong(self.where, f"record {row} has a feature {block[bad].flat[0]}; only 0 and 1 are expected")
        return block

    def _as_finite(self, block: NDArray[Any], start: int) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            block = block.astype(np.float32)
        bad = ~np.isfinite(block)
        if bad.any():
            row = start + _first_row(bad)
            raise wrong(
                self.where, f"record {row} has a feature that is not a finite number (NaN, infinite or beyond float32)"
            )
        return block

    def _as_tokens(self, block: NDArray[Any], start: int) -> NDArray[Any]:
        bad = block.astype(np.int64) < 0
        if bad.any():
            row = start + _first_row(bad)
            raise wrong(
                self.where, f"record {row} has the token {block[bad].flat[0]}; 0 and above are expected (below 2**63)"
            )
        return block


def _first_row(bad: NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))[0])


class Archive:
    """An open .npz."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._zip = archive
        self.names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]

    def pick(self, *aliases: str) -> str:
        """The first of these names that the archive has."""
        for alias in aliases:
            if alias in self.names:
                return alias
        has = ", ".join(self.names[:8]) or "no arrays"
        raise wrong(self.path, f"has {has}; an array named {' or '.join(aliases)} is expected")

    @contextmanager
    def open(self, name: str) -> Iterator[StoredArray]:
        """One array, its header checked against the size of what is stored."""
        info = self._zip.getinfo(f"{name}.npy")
        where = f"{self.path} ({name})"
        if info.flag_bits & 1:
            raise wrong(where, "is encrypted; an archive without a password is expected")
        if info.file_size > MAX_BYTES:
            raise wrong(where, f"claims {human(info.file_size)}; at most {human(MAX_BYTES)} is read")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise wrong(where, "is compressed in a way that numpy.savez_compressed does not write; save it again")
        if any(info.file_size > size and info.file_size > ratio * max(info.compress_size, 1) for size, ratio in _BOMBS):
            raise wrong(
                where,
                f"claims to unpack {human(info.compress_size)} to {human(info.file_size)}: hardly any records do (if "
                "yours do, save them with numpy.savez, which does not compress)",
            )
        with reading(where), self._zip.open(info) as stream:
            shape, fortran, dtype = _header(stream, where)
            if dtype.hasobject:
                raise wrong(where, "holds pickled Python objects, which may run code; save plain numbers instead")
            if dtype.names is not None or dtype.subdtype is not None:
                raise wrong(where, f"holds structures ({dtype}); plain numbers are expected")
            # Any number of empty rows takes no bytes, so that comparing sizes would let them pass.
            if 0 in shape or dtype.itemsize == 0:
                raise wrong(where, f"is of shape {shape} and type {dtype}, which holds nothing")
            if shape and shape[0] > MOST_RECORDS:
                raise wrong(where, f"claims {shape[0]:,} records; at most {MOST_RECORDS:,} are read (take a sample)")
            claimed = math.prod(shape) * dtype.itemsize
            stored = info.file_size - stream.tell()
            if claimed != stored or not shape:
                raise wrong(
                    where, f"the header claims shape {shape} of {dtype}, {claimed:,} bytes, but {stored:,} follow"
                )
            yield StoredArray(where, shape, dtype, fortran, stream)


def _header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"format version {version}")
        field = "<H" if version == (1, 0) else "<I"
        size = stream.read(struct.calcsize(field))
        (length,) = struct.unpack(field, size)
        if length > _LONGEST_HEADER:  # NumPy would read it all before it complains
            raise ValueError(f"a header of {length:,} bytes")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(io.BytesIO(size + stream.read(length)))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, struct.error) as error:
        raise wrong(where, f"is not a NumPy array ({error}); get or save it again") from error
    if any(n < 0 for n in shape):
        raise wrong(where, f"the header claims shape {shape}")
    return shape, fortran, dtype


@contextmanager
def open_npz(path: Path) -> Iterator[Archive]:
    """An .npz archive for reading."""
    with reading(path):
        if not zipfile.is_zipfile(regular(path)):
            raise wrong(path, "is not an .npz archive (or was cut short); one written by numpy.savez is expected")
        _check_directory(path)
        with zipfile.ZipFile(path) as archive:
            yield Archive(path, archive)


def _check_directory(path: Path) -> None:
    """The list of members is read as a whole when an archive is opened: it must be short."""
    with path.open("rb") as stream:
        end = zipfile._EndRecData(stream)  # type: ignore[attr-defined]
    if end is None or end[zipfile._ECD_SIZE] > _LARGEST_DIRECTORY:  # type: ignore[attr-defined]
        raise wrong(path, "lists more members than an .npz of records has")
