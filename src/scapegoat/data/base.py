"""A data set in memory, and what every reader shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.data.files.kinds import data_files, kind_of
from scapegoat.data.files.locate import roots
from scapegoat.devices import CPU, free_memory
from scapegoat.errors import OptionError, did_you_mean, shown
from scapegoat.registry import Component, Registry
from scapegoat.tasking.contract import LabelKind

MEANT: dict[LabelKind, str] = {
    "classes": "one class per record",
    "sets": "several labels per record",
    "numbers": "numbers",
}
"""Kinds of labels, for messages."""

MOST_OF_DEVICE = 0.4
"""Share of a device's free memory that records may take; more stay on the host."""


@dataclass(frozen=True)
class Dataset:
    """Records and labels of a data set called `name`.

    `x` is [N, ...], mostly [N, features] or [N, channels, height, width], stored as published: uint8 for images and
    binary features, int64 for ids that a model looks up, else float32. `labels` says what `y` is: int64 in
    0..classes-1; "sets", zeros and ones [N, classes]; or "numbers" [N, classes]. A task may have made other values of
    it, and grouped the records (`strata`, in 0..groups-1): by class where nothing else is said. The last
    `published_test` records are the test set that the publisher set aside; 0 where there is none. `scale` and `shift`
    turn stored values into what the model sees: (x - shift) / scale, one value per channel (or one for all). `notes`
    say what was done to a user's own values on the way, for the output and the report. Inputs and labels are handed
    out on `device`; a set that is too large for it stays on the host, and its records are sent as they are asked for.

    Examples
    --------
    >>> pictures = Dataset("made-up", torch.full((4, 3, 8, 8), 255, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), 2,
    ...                    shift=(127.5,), scale=(127.5,))
    >>> pictures.input_shape, float(pictures.inputs(torch.tensor([0])).max())
    ((3, 8, 8), 1.0)
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
    device: torch.device = CPU

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
        x = self.x[rows.to(self.x.device)]
        if self.x.device != self.device:
            x = (x.pin_memory() if self.device.type == "cuda" else x).to(self.device, non_blocking=True)
        x = x.to(self.input_dtype)
        if self.shift == (0.0,) and self.scale == (1.0,):
            return x
        shape = (1, -1) + (1,) * (x.dim() - 2) if x.dim() > 1 else (-1,)
        shift, scale = (torch.tensor(values).to(x.device) for values in (self.shift, self.scale))
        return x.sub_(shift.view(shape)).div_(scale.view(shape))

    def targets(self, rows: Tensor) -> Tensor:
        """The labels of these rows."""
        return self.y[rows.to(self.y.device)]

    def on(self, device: torch.device) -> Dataset:
        """The same records for a device: moved to it once, unless they would take more than a part of it."""
        if device == self.device:
            return self
        free = free_memory(device)
        moved = free is None or self.x.nbytes <= MOST_OF_DEVICE * free
        return replace(self, x=self.x.to(device) if moved else self.x, y=self.y.to(device), device=device)


class DataSpec(Component):
    """Options of a data set. `read` finds the files below the roots and returns the records.

    `train` limits the benign training records in all, `test` the test records, `validation` is the size of the server's
    own split.

    Examples
    --------
    >>> class Coins(DataSpec):
    ...     records: int = 100
    ...     def read(self, roots: list[Path]) -> Dataset:
    ...         y = torch.arange(self.records) % 2
    ...         return Dataset("coins", y[:, None].float(), y, 2)
    >>> len(Coins(records=10).read([]))
    10
    """

    train: Annotated[int, Field(ge=1)] | None = None
    """Training records of the benign clients in all; none: half of the data."""
    test: Annotated[int, Field(ge=1)] | None = None
    """The most test records; none: all that are left."""
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

    @property
    def title(self) -> str:
        """What messages call the data set."""
        return self.name

    def fingerprint(self, roots: list[Path]) -> str | None:
        """For a user's own files: what identifies their content, so that a changed file is another run."""
        return None


def _expand(name: str) -> tuple[str, dict[str, Any]] | None:
    """`kind:PATH` and plain paths; names of data sets come first."""
    kind, colon, path = name.partition(":")
    if colon:
        return kind, {"path": path}
    if name in registry.names():
        return None
    if (found := kind_of(name, roots())) is not None:
        return found, {"path": name}
    names = registry.names()
    hint = did_you_mean(name, [*names, *data_files(Path())])
    raise OptionError(
        "name",
        f"{shown(name)} is not a data set{hint} (one of: {', '.join(names)}, the path of a file or folder, or your "
        "own: package.module:Class)",
    )


registry: Registry[DataSpec] = Registry("data set", DataSpec, "scapegoat.data.sets", expand=_expand)
register = registry.register
get = registry.get
