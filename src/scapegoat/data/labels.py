"""Labels as they come in files, turned into 0..classes-1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapegoat.data.streams import wrong

MOST_CLASSES = 10_000


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


def encode(values: NDArray[Any], where: object) -> tuple[NDArray[np.int64], int]:
    """A user's labels (numbers or text), sorted and numbered from 0, and how many there are."""
    names, y = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise wrong(where, f"all labels are {names[0] if len(names) else 'missing'}; at least two classes are wanted")
    if len(names) > min(MOST_CLASSES, max(8, len(values) // 2)):
        raise wrong(
            where,
            f"{len(names):,} different labels in {len(values):,} records; is this a column of classes? (label option)",
        )
    return y.reshape(-1).astype(np.int64), len(names)
