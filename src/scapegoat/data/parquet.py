"""A user's own Parquet file, or folder of them: `parquet:PATH`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapegoat.data import labels
from scapegoat.data.base import register
from scapegoat.data.cache import Decoded
from scapegoat.data.own import OwnRecords, standardization
from scapegoat.data.pictures import Picture, Size, decode_all
from scapegoat.data.streams import wrong
from scapegoat.data.tables import LABELS, PICTURES, column, open_parquet, pick, picture_bytes


@register("parquet")
class ParquetData(OwnRecords):
    """A column of classes (`label`, found by its usual names if not given) and either numeric columns or pictures.

    Where there is a column of encoded pictures (`image`; found as `img` or `image`), the records are pictures, scaled
    to `size` (one side, or height and width) if given. Else every other column is a feature, brought to mean 0 and
    variance 1 unless `standardize` is off.
    """

    label: str | None = None
    image: str | None = None
    size: Size | None = None
    standardize: bool = True

    def decode(self, path: Path) -> Decoded:
        """The rows of all files, in the order of their names."""
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise wrong(path, "no .parquet files in it")
        marks: list[NDArray[Any]] = []
        rows: list[NDArray[Any]] = []
        pictures: list[Picture] = []
        names: list[str] | None = None
        for file in files:
            with open_parquet(file) as table:
                label = pick(table, file, (self.label,) if self.label else LABELS)
                marks.append(column(table, label, file))
                image = self._image_column(table, file)
                if image is not None:
                    pictures += picture_bytes(table, image, file)
                    continue
                features = [name for name in table.schema_arrow.names if name != label]
                if names is not None and features != names:
                    raise wrong(file, f"has other columns than {files[0].name}; the same ones are wanted")
                names = features
                rows.append(_features(table, features, file, self.tokens))
        if len({kind.dtype.kind == "U" for kind in marks}) > 1:
            raise wrong(path, "the label is text in one file and a number in another")
        if pictures and rows:
            raise wrong(path, "some files have a column of pictures and some have not")
        if pictures and self.tokens:
            raise wrong(path, "has a column of pictures; tokens are columns of integers")
        y, classes, note = labels.own_labels(np.concatenate(marks), path, self.classes)
        x = decode_all(pictures, str(path), self.size) if pictures else np.concatenate(rows)
        return Decoded(x, y, classes, note=note)

    def normalization(self, decoded: Decoded) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """By feature, unless switched off."""
        if self.standardize and not self.tokens and decoded.x.ndim == 2:
            return standardization(decoded.x)
        return super().normalization(decoded)

    def _image_column(self, table: Any, file: Path) -> str | None:
        if self.image is not None:
            return pick(table, file, (self.image,))
        return next((name for name in PICTURES if name in table.schema_arrow.names), None)


def _features(table: Any, names: list[str], file: Path, tokens: bool) -> NDArray[Any]:
    if not names:
        raise wrong(file, "has no column besides the label; numeric features or a column of pictures are wanted")
    rows = np.empty((table.metadata.num_rows, len(names)), np.int64 if tokens else np.float32)
    for number, name in enumerate(names):
        values = column(table, name, file)
        if values.dtype.kind == "U":
            raise wrong(file, f"the column {name} is text; numbers are wanted (encode it, or leave it out)")
        if tokens and values.dtype.kind not in "iu":
            raise wrong(file, f"the column {name} is of type {values.dtype}; integers are right for tokens")
        with np.errstate(over="ignore"):
            rows[:, number] = values
        bad = np.flatnonzero(rows[:, number] < 0 if tokens else ~np.isfinite(rows[:, number]))
        if len(bad):
            right = "a token from 0 on" if tokens else "a finite number"
            raise wrong(file, f"row {int(bad[0])} of the column {name} is not {right}; fill or remove it")
    return rows
