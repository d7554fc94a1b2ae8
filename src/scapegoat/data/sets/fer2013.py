"""FER2013: grey faces by emotion (Goodfellow et al., 2013)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from scapegoat.data.base import register
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.locate import FileLayout, Found, Publication
from scapegoat.data.files.published import PublishedPictures
from scapegoat.data.formats.picture_folders import class_folders, pictures_in
from scapegoat.data.formats.pictures import Picture, decode_all
from scapegoat.data.formats.progress import progress
from scapegoat.data.formats.safe_io import lines, open_bytes, wrong

_EMOTIONS = ("angry", "disgust", "fear", "happy", "sad", "surprise", "neutral")
_USAGES = ("Training", "PublicTest", "PrivateTest")
_SPELLINGS = {
    "disgusted": "disgust",
    "fearful": "fear",
    "surprised": "surprise",
    "anger": "angry",
    "happiness": "happy",
}
_PIXELS = 48 * 48
_LARGEST = 1 << 30
_LONGEST_LINE = 1 << 15
_DIGITS = re.compile(r"[0-9 ]+")


@register("fer2013")
class FER2013(PublishedPictures):
    """35,887 faces of 1 x 48 x 48, 7 emotions; the last 7,178 (PublicTest, then PrivateTest) for testing.

    `fer2013.csv` with its three usages (or `icml_face_data.csv`, the same with the columns in another order), or the
    folders `train/<emotion>` and `test/<emotion>`.
    """

    shift: ClassVar[tuple[float, ...]] = (127.5,)
    scale: ClassVar[tuple[float, ...]] = (127.5,)
    publication: ClassVar[Publication] = Publication(
        home="https://www.kaggle.com/c/challenges-in-representation-learning-facial-expression-recognition-challenge",
        layouts=(
            FileLayout("CSV", {"csv": ("fer2013.csv", "icml_face_data.csv", "fer2013/fer2013.csv")}),
            FileLayout(
                "folders of pictures",
                {"train": ("train",), "test": ("test",)},
                "the folders train/<emotion> and test/<emotion>",
            ),
        ),
        records=35_887,
        shapes=((1, 48, 48),),
        classes=7,
        test=7_178,
        checksums={
            "fer2013.csv": "md5:f8428a1edbd21e88f42c73edd2a14f95",
            "icml_face_data.csv": "md5:b114b9e04e6949e5fe8b6a98b3892b1d",
        },
    )

    def decode(self, found: Found) -> Decoded:
        """Training faces, then those of the two test usages."""
        if "csv" in found.files:
            return _from_csv(found.one("csv"), self.publication.records)
        train, train_y = _labelled(found.one("train"))
        test, test_y = _labelled(found.one("test"))
        x = decode_all([*train, *test], "fer2013", colour="gray", expect=(48, 48))
        return Decoded(x, np.array(train_y + test_y, dtype=np.int64), 7, len(test_y))


def _labelled(folder: Path) -> tuple[list[Picture], list[int]]:
    pictures: list[Picture] = []
    y: list[int] = []
    for path in class_folders(folder):
        emotion = _SPELLINGS.get(path.name.lower(), path.name.lower())
        if emotion not in _EMOTIONS:
            raise wrong(path, f"is not an emotion of fer2013 ({', '.join(_EMOTIONS)})")
        inside = pictures_in(path)
        pictures += inside
        y += [_EMOTIONS.index(emotion)] * len(inside)
    if not y:
        raise wrong(folder, f"has no folders; one for each of {', '.join(_EMOTIONS)} is expected")
    return pictures, y


def _from_csv(path: Path, most: int) -> Decoded:
    faces: dict[str, list[NDArray[np.uint8]]] = {usage: [] for usage in _USAGES}
    marks: dict[str, list[int]] = {usage: [] for usage in _USAGES}
    with open_bytes(path, _LARGEST) as stream, progress("decoding fer2013", most) as advance:
        for number, emotion, pixels, usage in _rows(stream, path, most):
            if usage not in faces:
                raise wrong(path, f"line {number} has the usage {usage[:40]!r}; {', '.join(_USAGES)} are expected")
            if emotion not in {"0", "1", "2", "3", "4", "5", "6"}:
                raise wrong(path, f"line {number} has the emotion {emotion[:40]!r}; 0 to 6 is expected")
            faces[usage].append(_face(pixels, path, number))
            marks[usage].append(int(emotion))
            if number > most + 1:
                raise wrong(path, f"has more than the {most:,} faces of fer2013")
            advance(1)
    x = [face for usage in _USAGES for face in faces[usage]]
    y = [mark for usage in _USAGES for mark in marks[usage]]
    if not x:
        raise wrong(path, "holds no faces; lines below the header emotion,pixels,Usage are expected")
    test = len(marks["PublicTest"]) + len(marks["PrivateTest"])
    return Decoded(np.stack(x).reshape(-1, 1, 48, 48), np.array(y, dtype=np.int64), 7, test)


def _rows(stream: BinaryIO, path: Path, most: int) -> Iterator[tuple[int, str, str, str]]:
    """Number, emotion, pixels and usage of every line, by the names in the header."""
    order: list[int] = []
    for block, at in lines(stream, path, _LONGEST_LINE, 2 * most + 100):
        for number, line in enumerate(block, at):
            cells = _cells(line, path, number)
            if not order:
                header = [name.strip().lower() for name in cells]
                if sorted(header) != ["emotion", "pixels", "usage"]:
                    raise wrong(
                        path, f"starts with {','.join(header)[:80]!r}; the header emotion,pixels,Usage is expected"
                    )
                order = [header.index(name) for name in ("emotion", "pixels", "usage")]
                continue
            if len(cells) != 3:
                raise wrong(path, f"line {number} has {len(cells)} columns; 3 are expected (was the file cut short?)")
            emotion, pixels, usage = (cells[i].strip() for i in order)
            yield number, emotion, pixels, usage


def _cells(line: bytes, path: Path, number: int) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8")], strict=True), [])
    except csv.Error as error:
        raise wrong(path, f"is not a whole CSV file (line {number}: {error})") from error


def _face(pixels: str, path: Path, number: int) -> NDArray[np.uint8]:
    if not _DIGITS.fullmatch(pixels):
        raise wrong(path, f"line {number} has pixels that are not numbers")
    values = np.fromstring(pixels, dtype=np.int64, sep=" ")
    if len(values) != _PIXELS or values.max() > 255:
        found = f"{len(values)} pixels" if len(values) != _PIXELS else f"a pixel of {values.max()}"
        raise wrong(path, f"line {number} has {found}; {_PIXELS} (48 x 48) from 0 to 255 are expected")
    return values.astype(np.uint8)
