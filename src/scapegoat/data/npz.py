"""A user's own NumPy archive: `npz:PATH`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scapegoat.data import labels
from scapegoat.data.arrays import open_npz
from scapegoat.data.base import register
from scapegoat.data.cache import Decoded
from scapegoat.data.own import OwnData, standardization
from scapegoat.data.streams import wrong


@register("npz")
class NpzData(OwnData):
    """`x` (or `features`), [records, features] or [records, channels, height, width]; `y` (or `labels`), a class each.

    Values are taken as they are, pictures of bytes to -1..1; with `standardize` every feature gets mean 0, variance 1.
    """

    standardize: bool = False

    def decode(self, path: Path) -> Decoded:
        """The two arrays, labels numbered from 0."""
        with open_npz(path) as archive:
            with archive.open(archive.pick("y", "labels", "Y", "label")) as stored:
                y, classes = self._labels(stored.read(), stored.where)
            with archive.open(archive.pick("x", "features", "X", "data")) as stored:
                _check_shape(stored.shape, stored.where)
                if stored.shape[0] != len(y):
                    raise wrong(path, f"{stored.shape[0]:,} records but {len(y):,} labels; one label a record is right")
                x = stored.features()
        return Decoded(x, y, classes)

    def normalization(self, decoded: Decoded) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """By feature if asked for."""
        if not self.standardize:
            return super().normalization(decoded)
        if decoded.x.ndim != 2:
            raise wrong(self.path, "standardize is for records of features; pictures are scaled to -1..1 anyway")
        return standardization(decoded.x)

    @staticmethod
    def _labels(values: NDArray[np.generic], where: str) -> tuple[NDArray[np.int64], int]:
        if values.ndim == 1 and values.dtype.kind in "US":
            return labels.encode(values, where)
        y, classes = labels.flat_labels(values, where)
        # One-hot rows say how many classes there are, even where one of them is empty.
        return (y, classes) if classes is not None else labels.encode(y, where)


def _check_shape(shape: tuple[int, ...], where: str) -> None:
    last = len(shape) == 4 and shape[1] not in (1, 3) and shape[3] in (1, 3)
    if len(shape) not in (2, 4) or last:
        hint = " (transpose it: the channels come last here)" if last else ""
        raise wrong(
            where, f"is of shape {shape}; [records, features] or [records, channels, height, width] is right{hint}"
        )
