"""A user's own NumPy archive: `npz:PATH`."""

from __future__ import annotations

from pathlib import Path

from scapegoat.data import labels
from scapegoat.data.arrays import open_npz
from scapegoat.data.base import register
from scapegoat.data.cache import Decoded
from scapegoat.data.own import OwnRecords, standardization
from scapegoat.data.streams import wrong


@register("npz")
class NpzData(OwnRecords):
    """`x` (or `features`), a row a record, of any shape that the model takes; `y` (or `labels`), a class each.

    Values are taken as they are, pictures of bytes to -1..1; with `standardize` every feature gets mean 0, variance 1.
    """

    def decode(self, path: Path) -> Decoded:
        """The two arrays."""
        with open_npz(path) as archive:
            with archive.open(archive.pick("y", "labels", "Y", "label")) as stored:
                y, classes, note = labels.own_labels(stored.read(), stored.where, self.classes)
            with archive.open(archive.pick("x", "features", "X", "data")) as stored:
                _check_shape(stored.shape, stored.where)
                if stored.shape[0] != len(y):
                    raise wrong(path, f"{stored.shape[0]:,} records but {len(y):,} labels; one label a record is right")
                x = stored.tokens() if self.tokens else stored.features()
        return Decoded(x, y, classes, note=note)

    def normalization(self, decoded: Decoded) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """By feature if asked for."""
        if not self.standardize:
            return super().normalization(decoded)
        if decoded.x.ndim != 2 or self.tokens:
            raise wrong(self.path, "standardize is for records of features, not for tokens, sequences or pictures")
        return standardization(decoded.x)


def _check_shape(shape: tuple[int, ...], where: str) -> None:
    if len(shape) < 2:
        raise wrong(where, f"is of shape {shape}; [records, features] or more dimensions are right")
    if len(shape) == 4 and shape[1] not in (1, 3) and shape[3] in (1, 3):
        raise wrong(
            where,
            f"is of shape {shape}; [records, channels, height, width] is right (transpose it: the channels come last)",
        )
