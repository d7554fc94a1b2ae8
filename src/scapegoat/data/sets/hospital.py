"""Generated hospital stays: sparse binary records like those of Texas100, so that an audit needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from scapegoat.data.base import Dataset, DataSpec, register
from scapegoat.randomness import numpy_generator

# Rows are drawn in blocks of about this many cells: the float32 draws of a block are all the memory that is needed
# beyond the uint8 result. The block is part of what the seed means.
_BLOCK_CELLS = 1 << 22


@register("hospital")
class Hospital(DataSpec):
    """Records of `features` yes/no attributes, a share `density` yes, labelled with one of `classes` procedures.

    Every record comes from two procedures. A few attributes are popular with everybody (a share `popular` of the ones,
    falling off as a power law); the others are specific to a procedure, and the record takes them from its two
    procedures in a random proportion. The label is either of the two, drawn with that proportion: some labels can only
    be memorised, which is what makes Texas100 leak. `mixing` says how mixed: 0 keeps every record to one procedure,
    1 lets the second have up to half of it.
    """

    records: Annotated[int, Field(ge=10, le=1_000_000)] = 5000
    """Generated records."""
    features: Annotated[int, Field(ge=4, le=100_000)] = 400
    """Yes/no attributes per record."""
    classes: Annotated[int, Field(ge=2, le=10_000)] = 30
    """Procedures."""
    density: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Share of the attributes that are yes."""
    popular: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """Share of the ones that are common to everybody."""
    mixing: Annotated[float, Field(ge=0, le=1)] = 0.85
    """How mixed records are: 0 keeps each to one procedure."""
    seed: int = 0
    """The seed of the generated records."""

    @property
    def pictures(self) -> bool:
        """Never."""
        return False

    def read(self, roots: list[Path]) -> Dataset:
        """The generated records; no file is looked for."""
        del roots
        common, specific = self._profiles()
        x = np.empty((self.records, self.features), dtype=np.uint8)
        y = np.empty(self.records, dtype=np.int64)
        block = max(1, _BLOCK_CELLS // self.features)
        for number, start in enumerate(range(0, self.records, block)):
            rows = slice(start, min(start + block, self.records))
            x[rows], y[rows] = self._draw(number, rows.stop - rows.start, common, specific)
        return Dataset(name=self.name, x=torch.from_numpy(x), y=torch.from_numpy(y), classes=self.classes)

    def _profiles(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Probability of each attribute by popularity [features], and what each procedure adds [classes, features]."""
        draw = numpy_generator(self.seed, "hospital/profiles")
        ones = self.density * self.features
        common = 1.0 / np.arange(1, self.features + 1) ** 0.7
        common = draw.permutation(common) * (self.popular * ones / common.sum())
        # Gamma weights with a small shape: most attributes hardly matter to a procedure, a few matter much.
        specific = draw.gamma(0.15, size=(self.classes, self.features))
        specific *= (1 - self.popular) * ones / specific.sum(axis=1, keepdims=True)
        return common.astype(np.float32), specific.astype(np.float32)

    def _draw(
        self, number: int, count: int, common: NDArray[np.float32], specific: NDArray[np.float32]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        draw = numpy_generator(self.seed, "hospital/records", number)
        first = draw.integers(self.classes, size=count)
        second = (first + draw.integers(1, self.classes, size=count)) % self.classes
        share = draw.random(count, dtype=np.float32) * np.float32(self.mixing / 2)
        wanted = specific[first] * (1 - share)[:, None] + specific[second] * share[:, None] + common
        x = (draw.random(wanted.shape, dtype=np.float32) < wanted).astype(np.uint8)
        return x, np.where(draw.random(count) < share, second, first)
