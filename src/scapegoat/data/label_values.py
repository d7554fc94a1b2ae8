"""What columns of labels are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scapegoat.tasking.contract import LabelKind

MOST_NUMBERED = 30
"""Different numbers that are taken for classes unless told that they are: ages and amounts have more."""


class Text(NamedTuple):
    """A column of text: every row's number in `names`. Rows of one long text do not take its length each."""

    codes: NDArray[np.int64]
    names: tuple[str, ...]


class Numbered(NamedTuple):
    """Labels 0..classes-1, or, by their kind, [records, classes]; `notes` say what became of the user's own."""

    y: NDArray[Any]
    classes: int
    notes: tuple[str, ...] = ()
    kind: LabelKind = "classes"
