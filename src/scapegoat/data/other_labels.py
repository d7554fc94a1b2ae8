"""Labels that are not classes: several per record, and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapegoat.data.formats.safe_io import wrong
from scapegoat.data.label_values import MOST_NUMBERED, Numbered, Text
from scapegoat.tasking.contract import LabelKind

STRAY = 0.01
"""Share of rows without a single 1 below which labels are one-hot ones with mistakes in them."""


def found(values: NDArray[Any]) -> LabelKind | None:
    """What labels are that can be no classes; None where they can."""
    if values.dtype.kind not in "biuf" or values.size == 0 or not np.isfinite(values).all():
        return None
    if values.ndim == 2 and values.shape[1] > 1 and (_zeros_and_ones(values) or signs(values)):
        differ = bool((values != values[0]).any())
        return "sets" if differ and float(((values > 0).sum(axis=1) != 1).mean()) > STRAY else None
    fractions = values.dtype.kind == "f" and bool((values != np.floor(values)).any())
    return "numbers" if fractions and len(np.unique(values)) > MOST_NUMBERED else None


def require_finite(values: NDArray[Any], where: object) -> None:
    """Refuse NaN and infinite labels by their record."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))[0])
        raise wrong(where, f"record {bad} has a label that is not a finite number; remove or fill it")


def refuse_probabilities(values: NDArray[Any], where: object) -> None:
    """Refuse rows of fractions that sum to one: they could be classes or numbers."""
    if values.ndim != 2 or values.dtype.kind != "f" or not values.size or (values < 0).any() or _zeros_and_ones(values):
        return
    if bool((np.abs(values.sum(axis=1, dtype=np.float64) - 1) < 1e-3).all()):
        raise wrong(
            where,
            f"every row of the labels sums to 1, as probabilities of {values.shape[1]} classes do, which are not read: "
            "give the likeliest class (labels.argmax(1)), or task=regression takes them as numbers",
        )


def signs(values: NDArray[Any]) -> bool:
    """Whether the values are -1 and 1, and both occur."""
    low, high = values == -1, values == 1
    return values.dtype.kind in "if" and bool((low | high).all() and low.any() and high.any())


def read(values: NDArray[Any] | Text, kind: LabelKind, where: object) -> Numbered:
    """Labels [records, k] of this kind."""
    if isinstance(values, Text) or values.dtype.kind not in "biuf":
        raise wrong(where, f"labels are text; {_RIGHT[kind]} are expected by the task")
    require_finite(values, where)
    rows = values.reshape(len(values), -1)
    if kind == "numbers":
        if rows.shape[1] == 1 and len(np.unique(rows)) < 2:
            raise wrong(where, f"all labels are {rows[0, 0]:g}; numbers that differ are expected")
        note = f"the labels are numbers from {rows.min():g} to {rows.max():g}: task regression"
        note += " (data.bins=4 makes classes)" if rows.shape[1] == 1 else ""
        return Numbered(rows.astype(np.float64), rows.shape[1], (note,), "numbers")
    if np.isin(rows, (-1, 1)).all():
        rows = rows > 0
    if not _zeros_and_ones(rows):
        bad = int(np.flatnonzero(((rows != 0) & (rows != 1)).any(axis=1))[0])
        raise wrong(where, f"record {bad} has a label that is neither 0 nor 1; {_RIGHT[kind]} are expected by the task")
    if not (rows != rows[0]).any():
        raise wrong(where, "all records have the same labels; labels that differ are expected")
    note = f"every record has up to {rows.shape[1]} labels at once: task multilabel"
    return Numbered(rows.astype(np.uint8), rows.shape[1], (note,), "sets")


_RIGHT: dict[LabelKind, str] = {"sets": "rows of zeros and ones, one column per label,", "numbers": "numbers"}


def _zeros_and_ones(values: NDArray[Any]) -> bool:
    return bool(((values == 0) | (values == 1)).all())
