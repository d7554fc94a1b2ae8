"""Parquet tables without trust: bounded before they are read, columns by name, values as plain arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapegoat.data.pictures import Picture
from scapegoat.data.streams import MAX_BYTES, human, reading, wrong
from scapegoat.errors import DataError

LABELS = ("label", "labels", "y", "target", "class")
PICTURES = ("img", "image", "picture")
_BOMB_SIZE = 64 << 20
_BOMB_RATIO = 1000


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """An open `pyarrow.parquet.ParquetFile`, refused where its footer claims too much."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        try:
            with pq.ParquetFile(path, thrift_string_size_limit=1 << 26, thrift_container_size_limit=1 << 20) as table:
                _check_claims(table.metadata, path)
                _check_names(table.schema_arrow.names, path)
                yield table
        except DataError:
            raise
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, MemoryError, OverflowError, KeyError) as error:
            raise wrong(path, f"is not a whole Parquet file ({_first_line(error)}); get it again") from error


def _check_claims(about: Any, path: Path) -> None:
    """Runs of equal values take next to no room, so the rows are weighed as well as the bytes."""
    packed = path.stat().st_size
    claimed = max(
        sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups)),
        4 * about.num_rows * about.num_columns,
    )
    if claimed > MAX_BYTES or claimed > max(_BOMB_SIZE, _BOMB_RATIO * packed):
        raise wrong(path, f"claims to unpack {human(packed)} to {human(claimed)}: no records do")


def _check_names(names: Sequence[str], path: Path) -> None:
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
    raise wrong(path, f"has the columns {', '.join(has[:12]) or '(none)'}; one named {' or '.join(names)} is wanted")


def column(table: Any, name: str, path: Path) -> NDArray[Any]:
    """A column of numbers, truth values or text as an array; a missing value is refused."""
    import pyarrow as pa

    values = table.read(columns=[name]).column(name)
    if values.null_count:
        raise wrong(path, f"the column {name} has {values.null_count:,} missing values; fill or remove them")
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(values.to_pylist(), dtype=np.str_)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise wrong(path, f"the column {name} is of type {kind}; numbers are wanted")
    out: NDArray[Any] = values.combine_chunks().to_numpy(zero_copy_only=False)
    return out


def picture_bytes(table: Any, name: str, path: Path) -> list[Picture]:
    """The pictures of a column of bytes, or of structures with a field `bytes`, as data hubs publish them."""
    import pyarrow as pa

    kind = table.schema_arrow.field(name).type
    nested = pa.types.is_struct(kind)
    if nested and kind.get_field_index("bytes") < 0:
        raise wrong(path, f"the column {name} is {kind}; a field `bytes` with the encoded picture is wanted")
    kind = kind.field("bytes").type if nested else kind
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise wrong(path, f"the column {name} is of type {kind}; encoded pictures (bytes) are wanted")
    # Encoded pictures hardly get smaller: rows that unpack to much more repeat one of them to fill the memory.
    room = max(_BOMB_SIZE, 50 * path.stat().st_size)
    pictures: list[Picture] = []
    for batch in table.iter_batches(batch_size=64, columns=[name]):
        values = batch.column(0).field("bytes") if nested else batch.column(0)
        if values.null_count:
            raise wrong(path, f"the column {name} has rows without a picture, the first after row {len(pictures)}")
        room -= values.nbytes
        if room < 0:
            raise wrong(path, f"the column {name} unpacks to more than 50 times the file: no pictures do")
        pictures += [(f"{path} (row {row})", value.as_py) for row, value in enumerate(values, len(pictures))]
    return pictures


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
