"""A user's own NumPy archive: `npz:PATH`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from scapegoat.data import labels
from scapegoat.data.base import register
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.user_files import UserRecords
from scapegoat.data.formats.arrays import open_npz
from scapegoat.data.formats.safe_io import wrong


@register("npz")
class NpzData(UserRecords):
    """`x` (or `features`), a row per record, of any shape that the model takes; `y` (or `labels`), a class each.

    Features get mean 0 and variance 1 unless `standardize` is off, pictures of bytes -1..1; the rest stays as it is.
    """

    folders: ClassVar[bool] = False

    def decode(self, path: Path) -> Decoded:
        """The two arrays."""
        with open_npz(path) as archive:
            marks, features = archive.pick("y", "labels", "Y", "label"), archive.pick("x", "features", "X", "data")
            with archive.open(marks) as stored_labels, archive.open(features) as stored:
                _check_shape(stored.shape, stored.where)
                values = stored_labels.labels(stored.shape[0])
                read = labels.own_labels(values, stored_labels.where, self.classes, self.bins, self.label_kind)
                x = stored.tokens() if self.tokens else stored.features()
        return Decoded(x, read.y, read.classes, notes=read.notes, labels=read.kind)


def _check_shape(shape: tuple[int, ...], where: str) -> None:
    if len(shape) < 2:
        raise wrong(where, f"is of shape {shape}; [records, features] or more dimensions are expected")
    if len(shape) == 4 and shape[1] not in (1, 3) and shape[3] in (1, 3):
        raise wrong(
            where,
            f"is of shape {shape}; expected [records, channels, height, width] (transpose it: the channels come last)",
        )
