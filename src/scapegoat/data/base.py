"""A data set in memory, and what every reader shares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.registry import Component, Registry


@dataclass(frozen=True)
class Dataset:
    """Records and labels.

    `x` is [N, ...], mostly [N, features] or [N, channels, height, width], stored as published: uint8 for images and
    binary features, int64 for ids that a model looks up, else float32. `y` is int64 in 0..classes-1. The last
    `published_test` records are the test set that the publisher set aside; 0 where there is none. `scale` and `shift`
    turn stored values into what the model sees: (x - shift) / scale, one value a channel (or one for all).
    """

    name: str
    x: Tensor
    y: Tensor
    classes: int
    published_test: int = 0
    shift: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)

    def __len__(self) -> int:
        return len(self.y)

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
    test: Annotated[int, Field(ge=1)] | None = None
    validation: Annotated[int, Field(ge=0)] = 200

    def read(self, roots: list[Path]) -> Dataset:
        """The data set from files below one of `roots` (the first that has them)."""
        raise NotImplementedError

    def fingerprint(self, roots: list[Path]) -> str | None:
        """For a user's own files: what identifies their content, so that a changed file is another run."""
        return None


def _expand(name: str) -> tuple[str, dict[str, Any]] | None:
    kind, colon, path = name.partition(":")
    return (kind, {"path": path}) if colon else None


registry: Registry[DataSpec] = Registry("data set", "scapegoat.data", expand=_expand)
register = registry.register
get = registry.get
