"""Fashion-MNIST: small grey pictures of clothes (Xiao et al., 2017)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scapegoat.data import labels
from scapegoat.data.base import register
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.locate import FileLayout, Found, Publication
from scapegoat.data.files.published import PublishedPictures
from scapegoat.data.formats.safe_io import open_bytes, read_exactly, wrong

_SIZES = {"train": 60_000, "t10k": 10_000}


def _names(split: str, what: str, dimensions: int) -> tuple[str, ...]:
    names = [f"{split}-{what}-idx{dimensions}-ubyte", f"{split}-{what}.idx{dimensions}-ubyte"]
    flat = [name + suffix for name in names for suffix in (".gz", "")]
    return (*flat, *(f"FashionMNIST/raw/{name}" for name in flat), *(f"raw/{name}" for name in flat))


@register("fashion_mnist")
class FashionMNIST(PublishedPictures):
    """70,000 pictures of 1 x 28 x 28, the last 10,000 of them for testing, 10 classes; IDX files, plain or gzip."""

    shift: ClassVar[tuple[float, ...]] = (127.5,)
    scale: ClassVar[tuple[float, ...]] = (127.5,)
    publication: ClassVar[Publication] = Publication(
        home="https://github.com/zalandoresearch/fashion-mnist",
        layouts=(
            FileLayout(
                "IDX files",
                {
                    f"{split}-{what}": _names(split, what, dimensions)
                    for split in _SIZES
                    for what, dimensions in (("images", 3), ("labels", 1))
                },
            ),
        ),
        records=70_000,
        shapes=((1, 28, 28),),
        classes=10,
        test=10_000,
        content="7782c69a55b1a9d1dc5126f4e476204534764621ff4f2f5b7d462a449193e0c0",
    )

    def decode(self, found: Found) -> Decoded:
        """Training pictures, then test pictures."""
        xs, ys = [], []
        for split, most in _SIZES.items():
            images, marks = found.one(f"{split}-images"), found.one(f"{split}-labels")
            x = read_idx(images, (most, 28, 28))
            y = read_idx(marks, (most,))
            if len(x) != len(y):
                raise wrong(
                    images, f"{len(x):,} pictures but {len(y):,} labels in {marks.name}; one per picture is expected"
                )
            xs.append(x)
            ys.append(labels.from_published(y.astype(np.int64), 10, 0, marks))
        return Decoded(np.concatenate(xs)[:, None], np.concatenate(ys), 10, len(ys[1]))


def read_idx(path: Path, most: tuple[int, ...]) -> NDArray[np.uint8]:
    """An IDX file of bytes with these dimensions, the first of them at most as large; the header is not believed."""
    with open_bytes(path, limit=4096 + int(np.prod(most))) as stream:
        magic = read_exactly(stream, 4, path)
        if magic != bytes((0, 0, 8, len(most))):
            right = bytes((0, 0, 8, len(most))).hex()
            raise wrong(path, f"starts with {magic.hex()}; an IDX file of bytes in {len(most)} dimensions with {right}")
        shape = struct.unpack(f">{len(most)}I", read_exactly(stream, 4 * len(most), path))
        if shape[1:] != most[1:] or shape[0] > most[0]:
            raise wrong(path, f"claims the shape {shape}; {most} is expected")
        content = read_exactly(stream, int(np.prod(shape)), path)
        if stream.read(1):
            raise wrong(path, f"goes on after the {len(content):,} bytes that its header announces; get it again")
    return np.frombuffer(content, np.uint8).reshape(shape)
