"""Tables as text, comma-separated or the like, without trust: bounded before they are read."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from scapegoat.data.formats import memory
from scapegoat.data.formats.safe_io import MOST_RECORDS, open_bytes, reading, regular, wrong
from scapegoat.data.formats.tables import check_names
from scapegoat.errors import DataError

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "#N/A", "?")
"""What stands for a missing value."""

_SEPARATORS = ",;\t|"
_LONGEST_HEADER = 1 << 20
_MOST_COLUMNS = 20_000
# gzip makes text smaller by a factor of 3 to 10, zeros and ones by 50.
_BOMB_SIZE = 32 << 20
_BOMB_RATIO = 100
# Text, what it was parsed to and the features made of it.
_PER_BYTE = 4


def read_csv(path: Path) -> tuple[Any, str]:
    """The table as pyarrow reads it, and the character that separates its columns.

    The first line names the columns. Columns are numbers where all their values are, else text (or dates).
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    packed = regular(path).stat().st_size
    memory.require(_PER_BYTE * packed, path, "the table and what is made of it")
    limit = min(max(_BOMB_SIZE, _BOMB_RATIO * packed), memory.available() // _PER_BYTE)
    with open_bytes(path, limit) as stream, reading(path):
        names, separator, rest = _header(stream, path)
        rest = rest or stream.read(_LONGEST_HEADER)
        if not rest.strip():
            raise wrong(path, "has no lines below the names of its columns")
        try:
            table = arrow_csv.read_csv(
                pa.PythonFile(_After(rest, stream), mode="r"),
                read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False),
                parse_options=arrow_csv.ParseOptions(delimiter=separator),
                convert_options=arrow_csv.ConvertOptions(
                    null_values=list(MISSING), strings_can_be_null=True, quoted_strings_can_be_null=True
                ),
            )
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            raise wrong(path, f"is not a table of {len(names)} columns ({_reason(error)})") from error
    if table.num_rows > MOST_RECORDS:
        raise wrong(path, f"has {table.num_rows:,} records; at most {MOST_RECORDS:,} are read (take a sample)")
    return table, separator


def _header(stream: BinaryIO, path: Path) -> tuple[list[str], str, bytes]:
    """The names in the first line, what separates them, and what was read beyond it."""
    start = stream.read(_LONGEST_HEADER)
    line, end, rest = start.partition(b"\n")
    if not end and len(start) == _LONGEST_HEADER:
        raise wrong(path, f"line 1 is longer than {_LONGEST_HEADER:,} bytes: not names of columns")
    try:
        text = line.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError:
        raise _not_utf8(path, "UTF-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "WINDOWS-1252") from None
    separator = max(_SEPARATORS, key=text.count)
    if text.count(separator) >= _MOST_COLUMNS:
        raise wrong(path, f"has {text.count(separator) + 1:,} columns; at most {_MOST_COLUMNS:,} are read")
    try:
        names = [name.strip() for name in next(csv.reader([text], delimiter=separator, strict=True), [])]
    except csv.Error as error:
        raise wrong(path, f"line 1 does not name columns ({error})") from error
    if len(names) < 2:
        raise wrong(path, f"line 1 is {text[:60]!r}; names of at least two columns, separated by commas, are expected")
    if all(_is_number(name) for name in names):
        raise wrong(path, f"line 1 is {text[:60]!r}: numbers where the names of the columns are expected")
    check_names([name for name in names if name], path)
    return [name or f"(unnamed {place})" for place, name in enumerate(names, 1)], separator, rest


def refuse_other_encodings(table: Any, names: Iterable[str], path: Path) -> None:
    """Refuse columns with text that is not UTF-8."""
    import pyarrow as pa

    if any(pa.types.is_binary(table.schema.field(name).type) for name in names):
        raise _not_utf8(path, "WINDOWS-1252")


def _not_utf8(path: Path, probably: str) -> DataError:
    return wrong(path, f"is not UTF-8 text; to convert it: iconv -f {probably} -t UTF-8 {path.name} > utf8-{path.name}")


def unnamed(name: str) -> bool:
    """Whether a column came without a name, as the row numbers that some programs write do."""
    return name.startswith("(unnamed ")


class _After:
    """A stream with some bytes put back at its start, as pyarrow reads one."""

    def __init__(self, start: bytes, stream: BinaryIO) -> None:
        self._start = start
        self._stream = stream
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        """Up to `count` bytes."""
        if self._start:
            part, self._start = (self._start, b"") if count < 0 else (self._start[:count], self._start[count:])
            return part
        return self._stream.read(count)

    def readable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """The stream underneath is whoever's who opened it."""
        self.closed = True


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _reason(error: BaseException) -> str:
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return "a line is longer than a megabyte" if "straddl" in text else text[:200]
