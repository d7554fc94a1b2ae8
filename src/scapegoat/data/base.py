"""A data set in memory, and what every reader shares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.data.files.kinds import kind_of
from scapegoat.data.files.locate import roots
from scapegoat.errors import OptionError
from scapegoat.registry import Component, Registry
from scapegoat.tasking.contract import LabelKind

MEANT: dict[LabelKind, str] = {
    "classes": "one class per record",
    "sets": "several labels per record",
    "numbers": "numbers",
}
"""Kinds of labels, for messages."""


@dataclass(frozen=True)
class Dataset:
    """Records and labels.

    `x` is [N, ...], mostly [N, features] or [N, channels, height, width], stored as published: uint8 for images and
    binary features, int64 for ids that a model looks up, else float32. `labels` says what `y` is: int64 in
    0..classes-1; "sets", zeros and ones [N, classes]; or "numbers" [N, classes]. A task may have made other values of
    it, and grouped the records (`strata`, in 0..groups-1): by class where nothing else is said. The last
    `published_test` records are the test set that the publisher set aside; 0 where there is none. `scale` and `shift`
    turn stored values into what the model sees: (x - shift) / scale, one value a channel (or one for all). `notes` say
    what was done to a user's own values on the way, for the output and the report.
    """

    name: str
    x: Tensor
    y: Tensor
    classes: int
    published_test: int = 0
    shift: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    notes: tuple[str, ...] = ()
    labels: LabelKind = "classes"
    strata: Tensor | None = None
    groups: int | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def grouped(self) -> tuple[Tensor, int]:
        """The group of each record, by which shares and targets are drawn, and how many groups there are."""
        if self.strata is None:
            return self.y, self.classes
        assert self.groups is not None
        return self.strata, self.groups

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record."""
        return tuple(self.x.shape[1:])

    @property
    def input_dtype(self) -> torch.dtype:
        """What the model sees: ids as they are, anything else as float32."""
        return torch.int64 if self.x.dtype == torch.int64 else torch.float32

    def inputs(self, rows: Tensor) -> Tensor:
        """The records of these rows as model inputs."""
        x = self.x[rows].to(self.input_dtype)
        if self.shift == (0.0,) and self.scale == (1.0,):
            return x
        shape = (1, -1) + (1,) * (x.dim() - 2) if x.dim() > 1 else (-1,)
        return x.sub_(torch.tensor(self.shift).view(shape)).div_(torch.tensor(self.scale).view(shape))


class DataSpec(Component):
    """Options of a data set. `read` finds the files below the roots and returns the records.

    `train` limits the benign training records in all, `test` the test records, `validation` is the size of the server's
    own split.
    """

    train: Annotated[int, Field(ge=1)] | None = None
    """Training records of the benign clients in all; none: half of the data."""
    test: Annotated[int, Field(ge=1)] | None = None
    """Test records at the most; none: all that are left."""
    validation: Annotated[int, Field(ge=0)] = 200
    """Records of the server's own."""

    @property
    def pictures(self) -> bool | None:
        """Whether the records are pictures; None where only reading them tells."""
        return None

    def labelled(self, kind: LabelKind | None) -> Self:
        """The data set, its labels read as these; None: as what they are found to be."""
        if kind in (None, "classes"):
            return self
        raise OptionError("task", f"{self.name} has one class per record, and the task asks for {MEANT[kind]}")

    def read(self, roots: list[Path]) -> Dataset:
        """The data set from files below one of `roots` (the first that has them)."""
        raise NotImplementedError

    def fingerprint(self, roots: list[Path]) -> str | None:
        """For a user's own files: what identifies their content, so that a changed file is another run."""
        return None


def _expand(name: str) -> tuple[str, dict[str, Any]] | None:
    """`kind:PATH` and plain paths; names of data sets come first."""
    kind, colon, path = name.partition(":")
    if colon:
        return kind, {"path": path}
    found = None if name in registry.names() else kind_of(name, roots())
    return None if found is None else (found, {"path": name})


registry: Registry[DataSpec] = Registry("data set", DataSpec, "scapegoat.data.sets", expand=_expand)
register = registry.register
get = registry.get
