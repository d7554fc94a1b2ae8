"""Bytes from files that may be damaged or hostile: bounded, never unpacked to disk, every failure one line."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NoReturn

from scapegoat.errors import DataError, ScapegoatError

# No data set here takes more than this, decoded; what claims more is refused before anything is allocated.
MAX_BYTES = 16 << 30
# More records than any simulated federation trains on.
MOST_RECORDS = 1 << 24
_LONGEST_TAR_HEADER = 1 << 13
_MOST_TAR_MEMBERS = 1000
_LINES = 1 << 20
_DAMAGE = (
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    struct.error,
    ValueError,
    LookupError,
    OverflowError,
    NotImplementedError,
    RecursionError,
)


def wrong(where: object, message: str) -> DataError:
    """A DataError of one line, whatever the file put into the message."""
    text = re.sub(r"[\x00-\x1f\x7f]+", " ", f"{where}: {message}").strip()
    return DataError(text if len(text) <= 600 else text[:597] + "...")


@contextmanager
def reading(where: object) -> Iterator[None]:
    """Turn whatever a damaged file makes the standard library raise into one line about `where`."""
    try:
        yield
    except ScapegoatError:
        raise
    except FileNotFoundError as error:
        raise wrong(where, "no such file") from error
    except PermissionError as error:
        raise wrong(where, "permission denied") from error
    except MemoryError as error:
        raise wrong(where, "does not fit into memory") from error
    except _DAMAGE as error:
        detail = str(error) or type(error).__name__
        raise wrong(where, f"is damaged or cut short ({detail}); get it again") from error


def human(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


class Bounded(io.RawIOBase):
    """A stream that refuses to give more than `limit` bytes: what a decompression bomb runs into."""

    def __init__(self, stream: BinaryIO, limit: int, where: object) -> None:
        super().__init__()
        self._stream = stream
        self._left = limit
        self._limit = limit
        self._where = where

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill `buffer` as far as the stream goes."""
        chunk = self._stream.read(len(buffer))
        self._left -= len(chunk)
        if self._left < 0:
            raise wrong(self._where, f"unpacks to more than {human(self._limit)}, which nothing of its kind does")
        buffer[: len(chunk)] = chunk
        return len(chunk)


def regular(path: Path) -> Path:
    """The path, refused where it is no file of bounded length: a pipe may never answer, a device never end."""
    with reading(path):
        state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise wrong(path, "is not a regular file (but a folder, pipe or device)")
    if state.st_size > MAX_BYTES:
        raise wrong(path, f"has {human(state.st_size)}; files of at most {human(MAX_BYTES)} are read")
    return path


@contextmanager
def open_bytes(path: Path, limit: int = MAX_BYTES) -> Iterator[BinaryIO]:
    """A file's bytes, decompressed where it is gzip (told by its first bytes, not by its name)."""
    with reading(path), regular(path).open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not packed:
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            yield io.BufferedReader(Bounded(unpacked, limit, path), 1 << 20)  # type: ignore[arg-type]


class _Member(tarfile.TarInfo):
    """A tar member whose extended headers (names, comments) may not be of absurd length, and which has no holes."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        extended = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
        if self.type in (*extended, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK) and (
            self.size > _LONGEST_TAR_HEADER
        ):
            raise tarfile.ReadError(f"a header of {human(self.size)}")
        if self.type == tarfile.GNUTYPE_SPARSE:
            self._refuse_holes()
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]

    def _refuse_holes(self, *_: object) -> NoReturn:
        """No publisher stores files so, and the list of holes may be of any length."""
        raise tarfile.ReadError("a sparse member; only plain files are read")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_holes


def tar_members(path: Path, wanted: Collection[str], limit: int) -> Iterator[tuple[str, BinaryIO]]:
    """The members whose last name part is `wanted`, as streams in the archive's order; nothing touches the disk.

    An archive with a member that would land outside of its folder, a link or a device is refused as a whole.
    """
    with (
        open_bytes(path, limit) as stream,
        reading(path),
        tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive,
    ):
        for number, member in enumerate(archive):
            archive.members.clear()  # type: ignore[attr-defined]  # else every header that was read is kept
            if number >= _MOST_TAR_MEMBERS:
                raise wrong(path, f"holds more than {_MOST_TAR_MEMBERS:,} members, which no published data set does")
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or "\\" in member.name:
                raise wrong(
                    path, f"holds a member {member.name!r} that points outside of the archive; not to be trusted"
                )
            if member.isdir():
                continue
            if not member.isreg():
                raise wrong(path, f"holds {member.name!r}, a link or device; only plain files are read")
            if member.size > limit:
                raise wrong(path, f"{member.name!r} claims {human(member.size)}; at most {human(limit)} is expected")
            if name.name in wanted:
                content = archive.extractfile(member)
                assert content is not None
                yield name.name, content  # type: ignore[misc]


def read_exactly(stream: BinaryIO, count: int, where: object) -> bytes:
    """Exactly `count` bytes, read in pieces so that a false count allocates nothing."""
    parts: list[bytes] = []
    left = count
    while left:
        part = stream.read(min(left, 1 << 22))
        if not part:
            raise wrong(where, f"ends after {count - left:,} of {count:,} bytes: cut short; get it again")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def lines(stream: BinaryIO, where: object, longest: int, most: int) -> Iterator[tuple[list[bytes], int]]:
    """Non-empty lines in blocks, each with the number of its first line.

    A line beyond `longest` bytes is refused, and so are more than `most` lines, empty ones included.
    """
    rest = b""
    number = 1
    while True:
        chunk = stream.read(_LINES)
        *whole, rest = (rest + chunk).split(b"\n") if chunk else [rest, b""]
        for at, line in enumerate((*whole, rest), number):
            if len(line) > longest:
                raise wrong(where, f"line {at} is longer than {longest:,} bytes: not comma-separated records")
        number += len(whole)
        if number - 1 > most + (not chunk):
            raise wrong(where, f"has more than {most:,} lines")
        kept = [line.rstrip(b"\r") for line in whole if line.strip()]
        if kept:
            yield kept, number - len(whole)
        if not chunk:
            return


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Checksum of a file's content; not computed twice while the file stays as it is."""
    with reading(regular(path)):
        state = path.stat()
        return _digest(path, algorithm, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest(path: Path, algorithm: str, size: int, changed: int) -> str:
    del size, changed
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()
