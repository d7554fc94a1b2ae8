"""Labels as they come in files, turned into 0..classes-1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scapegoat.data.streams import wrong

MOST_CLASSES = 10_000


class Numbered(NamedTuple):
    """Labels 0..classes-1; `note` says what became of the user's own numbers where they are others."""

    y: NDArray[np.int64]
    classes: int
    note: str = ""


def whole_numbers(values: NDArray[Any], where: object) -> NDArray[np.int64]:
    """Labels as integers; floats only where they are whole."""
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    if values.dtype.kind != "f":
        raise wrong(where, f"labels of type {values.dtype}; integers (or one-hot rows) are right")
    finite = np.isfinite(values)
    if not finite.all() or (values != np.floor(values)).any() or (np.abs(values) > 2**53).any():
        bad = values[~finite | (values != np.floor(values))][:1]
        raise wrong(where, f"a label is {bad[0] if len(bad) else 'too large'}; whole numbers are right")
    return values.astype(np.int64)


def flat_labels(values: NDArray[Any], where: object) -> tuple[NDArray[np.int64], int | None]:
    """Integer labels from [N], [N, 1] or one-hot [N, classes]; for one-hot also the number of classes."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 1:
        return whole_numbers(values, where), None
    if values.ndim != 2:
        raise wrong(where, f"labels of shape {values.shape}; [records] or one-hot [records, classes] is right")
    ones = values == 1
    bad = np.flatnonzero((ones.sum(axis=1) != 1) | ((values != 0) & ~ones).any(axis=1))
    if len(bad):
        raise wrong(where, f"row {int(bad[0])} of the one-hot labels does not have a single 1 among zeros")
    return ones.argmax(axis=1).astype(np.int64), int(values.shape[1])


def from_published(values: NDArray[np.int64], classes: int, first: int, where: object) -> NDArray[np.int64]:
    """Labels counted from `first` in the file, 0..classes-1 here."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (first, first)
    if low < first or high >= first + classes:
        bad = low if low < first else high
        raise wrong(where, f"a label is {bad}; {first} to {first + classes - 1} is right")
    return values - first


def own_labels(values: NDArray[Any], where: object, classes: int | None) -> Numbered:
    """A user's labels: 0..classes-1 as they are where `classes` is given, else sorted and numbered from 0."""
    if values.ndim == 1 and values.dtype.kind in "US":
        if classes is not None:
            raise wrong(where, f"labels are text; with `classes` 0 to {classes - 1} are right (or leave it out)")
        return _encode(values, where)
    y, columns = flat_labels(values, where)
    if columns is not None:
        # One-hot rows say how many classes there are, even where one of them is empty.
        if classes not in (None, columns):
            raise wrong(where, f"one-hot labels of {columns} classes, but `classes` is {classes}")
        return Numbered(y, columns)
    bad = np.flatnonzero((y < 0) | (y >= classes) if classes is not None else y < 0)
    if len(bad):
        right = "labels count from 0" if classes is None else f"with `classes` 0 to {classes - 1} are right"
        raise wrong(where, f"record {bad[0]} has the label {y[bad[0]]}; {right} (renumber or remove it)")
    return _encode(y, where) if classes is None else Numbered(y, classes)


def _encode(values: NDArray[Any], where: object) -> Numbered:
    names, y = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise wrong(where, f"all labels are {names[0] if len(names) else 'missing'}; at least two classes are wanted")
    if len(names) > min(MOST_CLASSES, max(8, len(values) // 2)):
        raise wrong(
            where,
            f"{len(names):,} different labels in {len(values):,} records; is this a column of classes? (label option)",
        )
    return Numbered(y.reshape(-1).astype(np.int64), len(names), _renumbering(names))


def _renumbering(names: NDArray[Any]) -> str:
    """What to say of numbers that are not 0..classes-1; text has to be numbered anyhow."""
    if names.dtype.kind in "US" or int(names[-1]) == len(names) - 1:
        return ""
    shown = [str(name) for name in names]
    if len(shown) > 12:
        shown[6:-3] = ["..."]
    return (
        f"the labels {', '.join(shown)} are taken as classes 0 to {len(names) - 1} in this order "
        "(data.classes=K takes labels 0 to K-1 as they are and refuses others)"
    )
