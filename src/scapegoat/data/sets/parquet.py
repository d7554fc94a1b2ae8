"""A user's own Parquet file, or folder of them: `parquet:PATH`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapegoat.data import labels
from scapegoat.data.base import register
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.user_tables import UserTable
from scapegoat.data.formats.columns import Column, joined
from scapegoat.data.formats.pictures import Picture, Size, decode_all
from scapegoat.data.formats.safe_io import wrong
from scapegoat.data.formats.tables import PICTURES, column, numbers, open_parquet, pick, picture_bytes


@register("parquet")
class ParquetData(UserTable):
    """A table (see `csv`), or a column of classes and one of pictures.

    Where there is a column of encoded pictures (`image`; found as `img` or `image`), the records are pictures, scaled
    to `size` (one side, or height and width) if given.
    """

    image: str | None = None
    """The column of encoded pictures; none: found by its usual names."""
    size: Size | None = None
    """Side, or height and width, that pictures are scaled to; none: they have one size."""

    def decode(self, path: Path) -> Decoded:
        """The rows of all files, in the order of their names."""
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise wrong(path, "no .parquet files in it")
        marks: list[Column] = []
        columns: dict[str, list[Column]] = {}
        pictures: list[Picture] = []
        tokens: list[NDArray[np.int64]] = []
        for number, file in enumerate(files):
            with open_parquet(file) as table:
                label, names = self.chosen(table.schema_arrow.names, file)
                marks.append(column(table, label, file))
                image = self._image_column(table, file)
                if number and (image is None) == bool(pictures):
                    raise wrong(path, "some files have a column of pictures and some have not")
                if image is not None:
                    pictures += picture_bytes(table, image, file)
                    continue
                if number and names != list(columns):
                    raise wrong(file, f"has other columns than {files[0].name}; the same ones are expected")
                for name in names:
                    columns.setdefault(name, [])
                if self.tokens:
                    tokens.append(_tokens(table, names, file))
                    continue
                for name in names:
                    columns[name].append(column(table, name, file))
        mark = joined(marks, path)
        if not pictures and not self.tokens:
            return self.assembled(mark, [joined(parts, path) for parts in columns.values()], path)
        if pictures and self.tokens:
            raise wrong(path, "has a column of pictures; tokens are columns of integers")
        read = labels.own_labels(mark.whole(path), path, self.classes, self.bins, self.label_kind)
        x = decode_all(pictures, str(path), self.size) if pictures else np.concatenate(tokens)
        return Decoded(x, read.y, read.classes, notes=read.notes, labels=read.kind)

    def _image_column(self, table: Any, file: Path) -> str | None:
        if self.image is not None:
            return pick(table, file, (self.image,))
        return next((name for name in PICTURES if name in table.schema_arrow.names), None)


def _tokens(table: Any, names: list[str], file: Path) -> NDArray[np.int64]:
    if not names:
        raise wrong(file, "has no column besides the label; columns of integers are expected for tokens")
    rows = np.empty((table.metadata.num_rows, len(names)), np.int64)
    for number, name in enumerate(names):
        values = numbers(table, name, file)
        if values.dtype.kind not in "iu":
            raise wrong(file, f"the column {name} is of type {values.dtype}; integers are expected for tokens")
        rows[:, number] = values
        bad = np.flatnonzero(rows[:, number] < 0)
        if len(bad):
            raise wrong(file, f"row {int(bad[0])} of the column {name} is not a token from 0 on; fill or remove it")
    return rows
