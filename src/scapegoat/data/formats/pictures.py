"""Encoded pictures (PNG, JPEG, ...) to arrays of bytes [channels, height, width]."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from scapegoat.data.formats import memory
from scapegoat.data.formats.progress import progress
from scapegoat.data.formats.safe_io import wrong
from scapegoat.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

# Formats whose decoders neither start other programs nor follow references.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
_MOST_PIXELS = 1 << 24
_GRAY = ("1", "L", "LA")

Picture = tuple[object, Callable[[], bytes]]
"""Where a picture comes from, for messages, and its bytes."""

Side = Annotated[int, Field(ge=1, le=1024)]
Size = Side | tuple[Side, Side]
"""One side of a square, or height and width."""


def decode_all(
    pictures: Sequence[Picture],
    title: str,
    size: Size | None = None,
    colour: Literal["auto", "rgb", "gray"] = "auto",
    expect: tuple[int, int] | None = None,
) -> NDArray[np.uint8]:
    """All pictures as one array [N, channels, height, width].

    They have one size, or are scaled to `size`; `expect` (height, width) refuses any other. With `auto` the result has
    one channel where no picture has colour, else three.
    """
    if not pictures:
        raise wrong(title, "no pictures")
    scaled = (size, size) if isinstance(size, int) else size
    if expect is not None and colour != "auto":
        (height, width), gray = expect, colour == "gray"  # nothing to find out beforehand
    else:
        height, width, gray = _survey(pictures, scaled)
    channels = 1 if colour == "gray" or (colour == "auto" and gray) else 3
    total = len(pictures) * channels * height * width
    memory.require(total, title, f"{len(pictures):,} pictures of {height} x {width}")
    out = np.empty((len(pictures), channels, height, width), np.uint8)
    with progress(f"decoding {title}", len(pictures)) as advance:
        for number, (where, content) in enumerate(pictures):
            mode = "L" if channels == 1 else "RGB"
            out[number] = _decode(content(), where, mode, (height, width), scale=scaled is not None)
            if number % 256 == 255:
                advance(256)
    return out


def _survey(pictures: Sequence[Picture], size: tuple[int, int] | None) -> tuple[int, int, bool]:
    """Height and width of the result, and whether no picture has colour; from the headers alone."""
    common = size
    gray = True
    for where, content in pictures:
        with _opened(content(), where) as picture:
            width, height = picture.size
            gray = gray and picture.mode in _GRAY
        common = common or (height, width)
        if size is None and (height, width) != common:
            raise _other_size(where, (height, width), common)
    assert common is not None
    return *common, gray


def _other_size(where: object, size: tuple[int, int], common: tuple[int, int]) -> DataError:
    return wrong(
        where, f"is {size[0]} x {size[1]} pixels, not {common[0]} x {common[1]}; pictures of one size are expected"
    )


@contextmanager
def _opened(content: bytes, where: object) -> Iterator[Image.Image]:
    """A picture whose header was read and found sane; its pixels are not decoded yet."""
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(content), formats=_FORMATS)
    except Exception as error:  # decoders raise whatever their format library raises
        raise wrong(where, "is not a picture that can be read (PNG, JPEG, BMP, GIF, WebP, PPM and TIFF can)") from error
    with picture:
        width, height = picture.size
        if width * height > _MOST_PIXELS:
            raise wrong(where, f"claims {height} x {width} pixels; at most {_MOST_PIXELS:,} are read")
        if picture.mode[:1] in ("I", "F"):
            raise wrong(where, f"has more than 8 bits per channel (mode {picture.mode}); save it with 8")
        yield picture


def _decode(content: bytes, where: object, mode: str, size: tuple[int, int], scale: bool) -> NDArray[np.uint8]:
    from PIL import Image

    with _opened(content, where) as picture:
        width, height = picture.size
        if not scale and (height, width) != size:
            raise _other_size(where, (height, width), size)
        try:
            converted = picture.convert(mode)
            if (height, width) != size:
                converted = converted.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        except Exception as error:  # as above
            raise wrong(where, f"is damaged or cut short ({error}); get it again") from error
        pixels = np.asarray(converted, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
