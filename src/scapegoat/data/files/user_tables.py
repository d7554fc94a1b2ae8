"""What the readers of a user's own tables share: which column is the label, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from scapegoat.data import labels
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.user_files import UserRecords
from scapegoat.data.formats.columns import Column, Missing, features
from scapegoat.data.formats.safe_io import wrong
from scapegoat.data.label_values import Text
from scapegoat.registry import added

_USUAL_LABELS = ("label", "labels", "target", "class")
_LISTED = 30


class UserTable(UserRecords):
    """A column of classes, `label`, and columns of numbers or text.

    The label is taken by its name only where a single column is called label, labels, target or class. Numbers are
    features as they are; text is one-hot encoded, at most `categories` different ones per column. Missing values are
    refused unless `missing` says what to do about them. Columns in `drop` are left out.
    """

    label: str | None = None
    """The column of classes; none: the only one that is called label, labels, target or class."""
    drop: tuple[str, ...] = added(())
    """Columns to leave out."""
    missing: Missing = added("refuse")
    """Missing values: refuse, drop their rows, or fill numbers with mean, median or zero (text gets a category)."""
    categories: Annotated[int, Field(ge=1, le=10_000)] = added(50)
    """The most different texts of a column that are one-hot encoded."""

    def chosen(self, names: Sequence[str], where: object) -> tuple[str, list[str]]:
        """The column of labels and those of features."""
        for wanted in (*self.drop, *((self.label,) if self.label is not None else ())):
            if wanted not in names:
                raise wrong(where, f"has no column named {wanted} ({_columns(names)})")
        left = [name for name in names if name not in self.drop]
        if self.label is None:
            usual = [name for name in left if name.lower() in _USUAL_LABELS]
            if len(usual) != 1:
                raise wrong(where, f"which column has the classes? Say data.label=NAME ({_columns(left)})")
            label = usual[0]
        else:
            label = self.label
            if label in self.drop:
                raise wrong(where, f"the column {label} is the label and cannot be left out")
        return label, [name for name in left if name != label]

    def assembled(self, label: Column, columns: Sequence[Column], path: Path) -> Decoded:
        """Records and labels from columns of one length."""
        if not columns:
            raise wrong(path, f"has no column besides the label {label.name}; numbers, text or pictures are expected")
        if self.missing == "drop" and label.missing.any():
            rows = ~label.missing
            columns = [_taken(column, rows) for column in columns]
            note: tuple[str, ...] = (f"{label.missing.sum():,} rows have no {label.name} and are left out",)
            label = _taken(label, rows)
        else:
            note = ()
        made = features(columns, self.missing, self.categories, path)
        if not made.kept.any():
            raise wrong(path, "every row has missing values; nothing is left")
        values = _taken(label, made.kept).whole(path)
        read = labels.own_labels(values, path, self.classes, self.bins, self.label_kind)
        named = () if self.label is not None else (f"the column {label.name} is taken for the label",)
        return Decoded(made.x, read.y, read.classes, notes=(*named, *read.notes, *note, *made.notes), labels=read.kind)


def _taken(column: Column, rows: NDArray[np.bool_]) -> Column:
    values = column.values
    taken = Text(values.codes[rows], values.names) if isinstance(values, Text) else values[rows]
    return Column(column.name, taken, column.missing[rows])


def _columns(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _LISTED else ""
    return f"the columns are {', '.join(names[:_LISTED])}{more}"
