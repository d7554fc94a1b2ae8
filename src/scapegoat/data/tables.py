"""Parquet tables without trust: bounded before they are read, columns by name, values as plain arrays."""

from __future__ import annotations

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


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """An open `pyarrow.parquet.ParquetFile`, refused where its footer claims too much."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        try:
            with pq.ParquetFile(path, thrift_string_size_limit=1 << 26, thrift_container_size_limit=1 << 20) as table:
                about = table.metadata
                claimed = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
                if claimed > MAX_BYTES:
                    raise wrong(path, f"claims to unpack to {human(claimed)}; at most {human(MAX_BYTES)} is read")
                yield table
        except DataError:
            raise
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, MemoryError, OverflowError) as error:
            raise wrong(path, f"is not a whole Parquet file ({_first_line(error)}); get it again") from error


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

    values = table.read(columns=[name]).column(name)
    if pa.types.is_struct(values.type):
        if values.type.get_field_index("bytes") < 0:
            raise wrong(path, f"the column {name} is {values.type}; a field `bytes` with the encoded picture is wanted")
        values = pa.chunked_array(
            [chunk.field("bytes") for chunk in values.chunks], type=values.type.field("bytes").type
        )
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        raise wrong(path, f"the column {name} is of type {values.type}; encoded pictures (bytes) are wanted")
    if values.null_count:
        raise wrong(path, f"the column {name} has {values.null_count:,} rows without a picture")
    scalars = (scalar for chunk in values.chunks for scalar in chunk)
    return [(f"{path} (row {row})", scalar.as_py) for row, scalar in enumerate(scalars)]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
