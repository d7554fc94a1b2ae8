"""Columns of tables: numbers or text with some values missing, turned into features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scapegoat.data import labels
from scapegoat.data.formats import memory
from scapegoat.data.formats.safe_io import wrong
from scapegoat.data.formats.written_numbers import has_decimal_comma
from scapegoat.data.label_values import Text
from scapegoat.data.labels import LONGEST_LABEL

Missing = Literal["refuse", "drop", "mean", "median", "zero"]
"""What becomes of missing values: no records at all, their rows left out, or numbers filled in."""

_LISTED = 12


@dataclass(frozen=True)
class Column:
    """A named column. Where `missing` is true its value means nothing."""

    name: str
    values: NDArray[Any] | Text
    missing: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.missing)

    def whole(self, where: object) -> NDArray[Any] | Text:
        """The values, refused where one is missing."""
        if self.missing.any():
            raise wrong(where, f"the column {self.name} has {self.missing.sum():,} missing values; fill or remove them")
        return self.values


class Features(NamedTuple):
    """Records of the rows in `kept` [rows], and what was done to get there."""

    x: NDArray[np.float32]
    kept: NDArray[np.bool_]
    notes: tuple[str, ...]


def from_arrow(name: str, values: Any, where: object) -> Column:
    """A column of a pyarrow table; refused unless it has numbers, truth values or text."""
    import pyarrow as pa

    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    missing = np.asarray(values.is_null().combine_chunks().to_numpy(zero_copy_only=False), dtype=bool)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Column(name, _numbered(name, values, where), missing)
    if pa.types.is_null(kind):
        return Column(name, np.zeros(len(values), np.float32), missing)
    if pa.types.is_boolean(kind):
        values, kind = values.cast(pa.uint8()), pa.uint8()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise wrong(
            where,
            f"the column {name} is of type {kind}; numbers or text are expected (turn it into them, or leave it out "
            f"with data.drop=[{name}])",
        )
    numbers: NDArray[Any] = values.cast(kind).combine_chunks().to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        missing = missing | np.isnan(numbers)
    return Column(name, numbers, missing)


def _numbered(name: str, values: Any, where: object) -> Text:
    """Rows by number: a text is stored once, however many rows have it, and stays so in memory."""
    number: dict[str, int] = {}
    codes: list[NDArray[np.int64]] = []
    for chunk in values.chunks:
        encoded = chunk if hasattr(chunk, "dictionary") else chunk.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        longest = max((len(text) for text in names if text is not None), default=0)
        if longest > LONGEST_LABEL:
            raise wrong(
                where, f"the column {name} has a text of {longest:,} characters; at most {LONGEST_LABEL:,} are read"
            )
        known = np.array([*(number.setdefault(text, len(number)) for text in names), 0], dtype=np.int64)
        rows = encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
        codes.append(known[rows])
    return Text(np.concatenate(codes) if codes else np.empty(0, np.int64), tuple(number))


def joined(parts: Sequence[Column], where: object) -> Column:
    """The same column of several files, one after the other."""
    values = labels.joined([part.values for part in parts], where)
    return Column(parts[0].name, values, np.concatenate([part.missing for part in parts]))


def features(columns: Sequence[Column], missing: Missing, categories: int, where: object) -> Features:
    """Numbers as they are, text one-hot: a feature for each of at most `categories` different texts, in their order."""
    rows = len(columns[0])
    lacking = {column.name: int(column.missing.sum()) for column in columns if column.missing.any()}
    if lacking and missing == "refuse":
        raise wrong(
            where,
            f"missing values: {_listed(lacking)} of {rows:,} rows; data.missing=drop leaves those rows out, mean, "
            "median or zero fills numbers in (text gets a category of its own)",
        )
    kept = np.ones(rows, dtype=bool)
    notes: list[str] = []
    if lacking and missing == "drop":
        kept = ~np.logical_or.reduce([column.missing for column in columns])
        notes.append(
            f"{rows - kept.sum():,} of {rows:,} rows have missing values and are left out ({_listed(lacking)})"
        )
    elif lacking:
        notes.append(f"missing values are filled in ({_listed(lacking)}): {missing} for numbers, a category for text")
    texts = {
        column.name: _occurring(column, column.values, kept) for column in columns if isinstance(column.values, Text)
    }
    many = {name: len(found) for name, found in texts.items() if len(found) > categories}
    for name in many:
        _refuse_decimal_commas(name, columns, where)
    if many:
        raise wrong(
            where,
            f"too many different texts to encode: {_listed(many)}; at most {categories} are: leave columns out with "
            f"data.drop=[{', '.join(many)}], or set data.categories",
        )
    if texts:
        notes.append(f"text is one-hot encoded: {_listed({name: len(found) for name, found in texts.items()})}")
    width = sum(len(texts[column.name]) if column.name in texts else 1 for column in columns)
    memory.require(4 * int(kept.sum()) * width, where, f"{rows:,} records of {width:,} features")
    x = np.empty((int(kept.sum()), width), np.float32)
    at = 0
    for column in columns:
        if isinstance(column.values, Text):
            codes = np.where(column.missing, -1, column.values.codes)[kept]
            for code in texts[column.name]:
                x[:, at] = codes == code
                at += 1
        else:
            x[:, at] = _filled(column, column.values, missing, where)[kept]
            at += 1
    return Features(x, kept, tuple(notes))


def _refuse_decimal_commas(name: str, columns: Sequence[Column], where: object) -> None:
    text = next(column.values for column in columns if column.name == name)
    commas = [value for value in text.names if has_decimal_comma(value)] if isinstance(text, Text) else []
    if isinstance(text, Text) and 2 * len(commas) > len(text.names):
        raise wrong(
            where,
            f"the column {name} is text of which most are numbers with a decimal comma ({commas[0]!r}); write them "
            f"with a decimal point, or leave the column out with data.drop=[{name}]",
        )


def _occurring(column: Column, text: Text, kept: NDArray[np.bool_]) -> list[int]:
    """The codes that occur, in the order of what they stand for; -1, the missing ones, last."""
    codes = np.unique(np.where(column.missing, -1, text.codes)[kept]).tolist()
    return sorted(codes, key=lambda code: (code < 0, text.names[code] if code >= 0 else ""))


def _filled(column: Column, values: NDArray[Any], missing: Missing, where: object) -> NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = values.astype(np.float32)
    there = numbers[~column.missing]
    if not np.isfinite(there).all():
        row = int(np.flatnonzero(~np.isfinite(numbers) & ~column.missing)[0])
        raise wrong(where, f"row {row} of the column {column.name} is not a finite number; fill or remove it")
    if missing in ("mean", "median") and not len(there):
        raise wrong(
            where, f"the column {column.name} has no values at all; leave it out with data.drop=[{column.name}]"
        )
    if missing == "mean":
        numbers[column.missing] = there.mean(dtype=np.float64)
    elif missing == "median":
        numbers[column.missing] = np.median(there)
    else:
        numbers[column.missing] = 0
    return numbers


def _listed(counts: dict[str, int]) -> str:
    shown = [f"{name} {count:,}" for name, count in counts.items()]
    return ", ".join([*shown[:_LISTED], "..."] if len(shown) > _LISTED else shown)
