"""Parquet tables without trust: bounded before they are read, columns by name, values as plain arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from scapegoat.data.formats import memory
from scapegoat.data.formats.columns import Column, from_arrow
from scapegoat.data.formats.pictures import Picture
from scapegoat.data.formats.safe_io import MAX_BYTES, MOST_RECORDS, human, reading, regular, wrong
from scapegoat.data.label_values import Text
from scapegoat.errors import DataError

LABELS = ("label", "labels", "y", "target", "class")
"""What published tables call the column of labels."""
PICTURES = ("img", "image", "picture")
# Runs of equal values take next to no room; what is large as well has to come with bytes of its own.
_BOMBS = ((64 << 20, 1000), (512 << 20, 100))
_MOST_COLUMNS = 100_000
_BATCH = 64 << 20
_LIMITS = {"thrift_string_size_limit": 1 << 26, "thrift_container_size_limit": 1 << 20}


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """An open `pyarrow.parquet.ParquetFile`, refused where its footer claims too much."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        try:
            with pq.ParquetFile(regular(path), **_LIMITS) as table:
                _check_claims(table.metadata, path)
                check_names(table.schema_arrow.names, path)
                yield table
        except DataError:
            raise
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, MemoryError, OverflowError, LookupError) as error:
            raise wrong(path, f"is not a whole Parquet file ({_first_line(error)}); get it again") from error


def _check_claims(about: Any, path: Path) -> None:
    """Runs of equal values take next to no room, so the rows are weighed as well as the bytes."""
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    rows = max(about.num_rows, sum(group.num_rows for group in groups))
    if rows > MOST_RECORDS:
        raise wrong(path, f"claims {rows:,} records; at most {MOST_RECORDS:,} are read (take a sample)")
    if about.num_columns > _MOST_COLUMNS:
        raise wrong(path, f"has {about.num_columns:,} columns; at most {_MOST_COLUMNS:,} are read")
    packed = path.stat().st_size
    claimed = max(sum(group.total_byte_size for group in groups), 4 * rows * about.num_columns)
    if claimed > MAX_BYTES or any(claimed > size and claimed > ratio * packed for size, ratio in _BOMBS):
        raise wrong(
            path,
            f"claims to unpack {human(packed)} to {human(claimed)}: hardly any records do (if yours do, write them "
            "without compression and dictionaries, or as .npz)",
        )
    memory.require(claimed, path, f"{rows:,} rows of {about.num_columns:,} columns")


def check_names(names: Sequence[str], path: Path) -> None:
    """Columns are read by name, which must say which one is meant."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise wrong(path, f"has more than one column named {', '.join(twice[:8])}; rename or remove all but one")


def pick(table: Any, path: Path, names: Sequence[str]) -> str:
    """The first of these columns that the table has."""
    has = list(table.schema_arrow.names)
    for name in names:
        if name in has:
            return name
    raise wrong(path, f"has the columns {', '.join(has[:12]) or '(none)'}; one named {' or '.join(names)} is expected")


def column(table: Any, name: str, path: Path) -> Column:
    """A column of numbers, truth values or text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = table.schema_arrow.field(name).type
    if pa.types.is_nested(kind):
        raise wrong(path, f"the column {name} is of type {kind}; numbers or text are expected (or data.drop=[{name}])")
    if not (pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return from_arrow(name, table.read(columns=[name]).column(name), path)
    # As it is stored: a text once, however many rows have it.
    with pq.ParquetFile(path, read_dictionary=[name], **_LIMITS) as by_number:
        return from_arrow(name, by_number.read(columns=[name]).column(name), path)


def numbers(table: Any, name: str, path: Path) -> NDArray[Any]:
    """The values of a column that has numbers or truth values, none of them missing."""
    values = column(table, name, path).whole(path)
    if isinstance(values, Text):
        raise wrong(path, f"the column {name} is text; numbers are expected (encode it, or leave it out)")
    return values


def picture_bytes(table: Any, name: str, path: Path) -> list[Picture]:
    """The pictures of a column of bytes, or of structures with a field `bytes`, as data hubs publish them."""
    import pyarrow as pa

    kind = table.schema_arrow.field(name).type
    nested = pa.types.is_struct(kind)
    if nested and kind.get_field_index("bytes") < 0:
        raise wrong(path, f"the column {name} is {kind}; a field `bytes` with the encoded picture is expected")
    kind = kind.field("bytes").type if nested else kind
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise wrong(path, f"the column {name} is of type {kind}; encoded pictures (bytes) are expected")
    # Encoded pictures hardly get smaller: rows that unpack to much more repeat one of them to fill the memory.
    room = max(_BATCH, 50 * path.stat().st_size)
    largest = max((_largest_chunk(table.metadata.row_group(i)) for i in range(table.num_row_groups)), default=0)
    pictures: list[Picture] = []
    wanted = f"{name}.bytes" if nested else name  # whatever else the structure holds stays where it is
    for batch in table.iter_batches(batch_size=max(1, min(64, _BATCH // max(largest, 1))), columns=[wanted]):
        values = batch.column(0).field("bytes") if nested else batch.column(0)
        if values.null_count:
            raise wrong(path, f"the column {name} has rows without a picture, the first after row {len(pictures)}")
        room -= values.nbytes
        if room < 0:
            raise wrong(path, f"the column {name} unpacks to more than 50 times the file: no pictures do")
        pictures += [(f"{path} (row {row})", value.as_py) for row, value in enumerate(values, len(pictures))]
    return pictures


def _largest_chunk(group: Any) -> int:
    """The most bytes that a row can have: a batch may repeat it."""
    return max((group.column(i).total_uncompressed_size for i in range(group.num_columns)), default=0)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
