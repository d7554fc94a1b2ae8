"""A user's own pictures: `images:PATH`, a folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from scapegoat.data.base import register
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.user_files import UserFiles
from scapegoat.data.formats.picture_folders import class_folders, pictures_in
from scapegoat.data.formats.pictures import Picture, Size, decode_all
from scapegoat.data.formats.safe_io import wrong


@register("images")
class ImagesData(UserFiles):
    """PATH/<class>/<picture>, or PATH/train/<class>/... and PATH/test/<class>/... where a test set is set aside.

    The pictures have one size, or are scaled to `size` (one side, or height and width). `colour: auto` keeps one
    channel where no picture has colour.
    """

    size: Size | None = None
    """Pixels per side that pictures are brought to."""
    colour: Literal["auto", "rgb", "gray"] = "auto"
    """Whether pictures keep their colours."""

    @property
    def pictures(self) -> bool:
        """Always."""
        return True

    def decode(self, path: Path) -> Decoded:
        """Classes numbered in the order of their names."""
        if not path.is_dir():
            raise wrong(path, "is not a folder; it must be a folder that holds one folder of pictures per class")
        inside = class_folders(path)
        split = sorted(folder.name for folder in inside) == ["test", "train"] and all(map(class_folders, inside))
        parts = [path / "train", path / "test"] if split else [path]
        names = [folder.name for folder in class_folders(parts[0])]
        if len(names) < 2:
            raise wrong(parts[0], f"has {len(names)} folders; one for each of at least two classes is expected")
        pictures: list[Picture] = []
        y: list[int] = []
        test = 0
        for part in parts:
            test = 0
            for folder in class_folders(part):
                if folder.name not in names:
                    raise wrong(folder, f"no such class in {parts[0]} ({', '.join(names[:12])})")
                found = pictures_in(folder)
                pictures += found
                y += [names.index(folder.name)] * len(found)
                test += len(found)
        x = decode_all(pictures, str(path), self.size, self.colour)
        return Decoded(x, np.array(y, dtype=np.int64), len(names), test if split else 0)
