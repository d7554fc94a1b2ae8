"""Labels as they come in files, turned into 0..classes-1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapegoat.data import other_labels
from scapegoat.data.formats.safe_io import wrong
from scapegoat.data.formats.written_numbers import refuse_numbers
from scapegoat.data.label_values import MOST_NUMBERED, Numbered, Text
from scapegoat.tasking.contract import LabelKind

MOST_CLASSES = 10_000
LONGEST_LABEL = 1000
"""Characters of a label that is text."""


def whole_numbers(values: NDArray[Any], where: object) -> NDArray[np.int64]:
    """Labels as integers; floats only where they are whole."""
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    if values.dtype.kind != "f":
        raise wrong(where, f"labels of type {values.dtype}; integers (or one-hot rows) are expected")
    other_labels.require_finite(values, where)
    fractions = values[values != np.floor(values)][:1]
    if len(fractions) or (np.abs(values) > 2**53).any():
        raise wrong(where, f"a label is {fractions[0] if len(fractions) else 'too large'}; whole numbers are expected")
    return values.astype(np.int64)


def flat_labels(values: NDArray[Any], where: object) -> tuple[NDArray[np.int64], int | None]:
    """Integer labels from [N], [N, 1] or one-hot [N, classes]; for one-hot also the number of classes."""
    values = _one_column(values)
    if values.ndim == 1:
        return whole_numbers(values, where), None
    if values.ndim != 2:
        raise wrong(where, f"labels of shape {values.shape}; [records] or one-hot [records, classes] is expected")
    ones = values == 1
    bad = np.flatnonzero((ones.sum(axis=1) != 1) | ((values != 0) & ~ones).any(axis=1))
    if len(bad):
        raise wrong(
            where,
            f"row {int(bad[0])} of the one-hot labels does not have a single 1 among zeros "
            "(task=multilabel takes several)",
        )
    return ones.argmax(axis=1).astype(np.int64), int(values.shape[1])


def from_published(values: NDArray[np.int64], classes: int, first: int, where: object) -> NDArray[np.int64]:
    """Labels counted from `first` in the file, 0..classes-1 here."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (first, first)
    if low < first or high >= first + classes:
        bad = low if low < first else high
        raise wrong(where, f"a label is {bad}; {first} to {first + classes - 1} is expected")
    return values - first


def joined(parts: list[NDArray[Any] | Text], where: object) -> NDArray[Any] | Text:
    """The labels of several files, one after the other."""
    texts = [part for part in parts if isinstance(part, Text)]
    if not texts:
        return np.concatenate([part for part in parts if not isinstance(part, Text)])
    if len(texts) < len(parts):
        raise wrong(where, "the label is text in one file and a number in another")
    names = tuple(sorted({name for part in texts for name in part.names}))
    number = {name: i for i, name in enumerate(names)}
    codes = [np.array([number[name] for name in part.names], dtype=np.int64)[part.codes] for part in texts]
    return Text(np.concatenate(codes), names)


def own_labels(
    values: NDArray[Any] | Text,
    where: object,
    classes: int | None = None,
    bins: int | None = None,
    kind: LabelKind | None = None,
) -> Numbered:
    """A user's labels, numbered from 0 in their order; with `classes` 0..classes-1 as they are, with `bins` in ranges.

    `kind` says what they are. Else several labels per record, and numbers with fractions, are found by themselves; many
    different whole numbers are refused unless something says what they are.
    """
    if kind in ("sets", "numbers"):
        return other_labels.read(values, kind, where)
    if not isinstance(values, Text):
        values = _one_column(values)
    if classes is not None and bins is not None:
        raise wrong(where, "`classes` says that labels are classes and `bins` that they are numbers; only one can hold")
    text = isinstance(values, Text) or (values.ndim == 1 and values.dtype.kind in "US")
    if text and (classes or bins):
        right = f"with `classes` 0 to {classes - 1}" if classes is not None else "with `bins` numbers"
        raise wrong(where, f"labels are text; {right} are expected (or leave it out)")
    if isinstance(values, Text):
        if kind is None:
            refuse_numbers(values.names, where)
        occurring, y = np.unique(values.codes, return_inverse=True)
        order = np.argsort(np.array([values.names[code] for code in occurring], dtype=object), kind="stable")
        names = np.array([values.names[code] for code in occurring[order]], dtype=object)
        return _numbered(names, np.argsort(order)[y], where)
    if text:
        if kind is None:
            refuse_numbers(np.unique(values).tolist(), where)
        return _encode(values, where)
    other_labels.require_finite(values, where)
    if bins is not None:
        return _binned(values, bins, where)
    other_labels.refuse_probabilities(values, where)
    if kind is None and classes is None and (found := other_labels.found(values)) is not None:
        return other_labels.read(values, found, where)
    _refuse_measurements(values, where)
    if classes is None and other_labels.signs(values):
        if values.ndim == 1:
            return Numbered((values > 0).astype(np.int64), 2, ("the labels -1 and 1 are taken as classes 0 and 1",))
        values = values > 0
    y, columns = flat_labels(values, where)
    if columns is not None:
        # One-hot rows say how many classes there are, even where one of them is empty.
        if classes not in (None, columns):
            raise wrong(where, f"one-hot labels of {columns} classes, but `classes` is {classes}")
        return Numbered(y, columns)
    bad = np.flatnonzero((y < 0) | (y >= classes) if classes is not None else y < 0)
    if len(bad):
        fix = f"labels count from 0 (renumber or remove it), or {_RANGES}"
        if classes is not None:
            fix = f"with `classes` 0 to {classes - 1} are expected (renumber or remove it)"
        raise wrong(where, f"record {bad[0]} has the label {y[bad[0]]}; {fix}")
    return _encode(y, where) if classes is None else Numbered(y, classes)


def _one_column(values: NDArray[Any]) -> NDArray[Any]:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _refuse_measurements(values: NDArray[Any], where: object) -> None:
    """Fractions are not classes."""
    if values.ndim == 1 and values.dtype.kind == "f" and np.isfinite(values).all():
        fractions = values[values != np.floor(values)]
        if len(fractions):
            raise wrong(where, f"a label is {fractions[0]}; whole numbers are expected, or {_RANGES}")


def _binned(values: NDArray[Any], bins: int, where: object) -> Numbered:
    """Ranges with about as many records each."""
    numbers = (
        values.reshape(-1).astype(np.float64) if values.size == len(values) and values.dtype.kind in "biuf" else None
    )
    if numbers is None or not np.isfinite(numbers).all():
        raise wrong(where, "`bins` makes ranges of one finite number per record, and the labels are something else")
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, bins + 1)[1:-1], method="higher"))
    y = np.searchsorted(edges, numbers, side="right").astype(np.int64)
    if len(np.unique(y)) != len(edges) + 1 or len(edges) + 1 != bins:
        raise wrong(where, f"the labels have too few different values for {bins} bins; choose fewer")
    shown = ", ".join(f"{edge:g}" for edge in edges)
    return Numbered(y, bins, (f"the labels are {bins} ranges of the numbers in the file, split at {shown}",))


_RANGES = "task=regression takes them as numbers, data.bins=4 makes four ranges of them"


def _encode(values: NDArray[Any], where: object) -> Numbered:
    names, y = np.unique(values, return_inverse=True)
    if len(names) > MOST_NUMBERED and names.dtype.kind not in "US":
        raise wrong(
            where,
            f"the labels are {len(names):,} different numbers from {names[0]} to {names[-1]}, as ages or amounts are: "
            f"{_RANGES}, or data.classes=K says that they are classes 0 to K-1",
        )
    return _numbered(names, y, where)


def _numbered(names: NDArray[Any], y: NDArray[Any], where: object) -> Numbered:
    if len(names) < 2:
        raise wrong(where, f"all labels are {names[0] if len(names) else 'missing'}; at least two classes are expected")
    if len(names) > min(MOST_CLASSES, max(8, y.size // 2)):
        raise wrong(
            where,
            f"{len(names):,} different labels in {y.size:,} records; is this a column of classes? (label option)",
        )
    return Numbered(y.reshape(-1).astype(np.int64), len(names), _renumbering(names))


def _renumbering(names: NDArray[Any]) -> tuple[str, ...]:
    """What to say of numbers that are not 0..classes-1; text has to be numbered anyhow."""
    if names.dtype.kind in "USO" or int(names[-1]) == len(names) - 1:
        return ()
    shown = [str(name) for name in names]
    if len(shown) > 12:
        shown[6:-3] = ["..."]
    return (
        f"the labels {', '.join(shown)} are taken as classes 0 to {len(names) - 1} in this order "
        "(data.classes=K takes labels 0 to K-1 as they are and refuses others)",
    )
