"""Comma-separated 0/1 records, and the readers of the data sets that are published so."""

from __future__ import annotations

from typing import BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from scapegoat.data import labels
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.locate import Found
from scapegoat.data.files.published import PublishedData
from scapegoat.data.formats.arrays import open_npz
from scapegoat.data.formats.safe_io import lines, open_bytes, tar_members, wrong


class PublishedRecords(PublishedData):
    """Binary records as an .npz (`features`, `labels`), a .tgz of comma-separated files, or those files themselves.

    `one_file` names the file that has the label first in every line; else features and labels are two files, `feats`
    and `labels`. Labels count from 1 in text.
    """

    one_file: ClassVar[str | None] = None

    def decode(self, found: Found) -> Decoded:
        """Records and labels of any of the layouts."""
        if "npz" in found.files:
            return self._from_npz(found)
        if "archive" in found.files:
            path = found.one("archive")
            wanted = (self.one_file,) if self.one_file else ("feats", "labels")
            x, y = None, None
            for name, stream in tar_members(path, wanted, self._limit()):
                where = f"{path} ({name})"
                if name == "labels":
                    y = self._labels(stream, where)
                else:
                    x, first = self._rows(stream, where)
                    y = first if self.one_file else y
            if x is None or y is None:
                raise wrong(path, f"does not hold {' and '.join(wanted)}")
        elif self.one_file:
            with open_bytes(found.one("records"), self._limit()) as stream:
                x, y = self._rows(stream, found.one("records"))
        else:
            with open_bytes(found.one("feats"), self._limit()) as stream:
                x, _ = self._rows(stream, found.one("feats"))
            with open_bytes(found.one("labels"), self._limit()) as stream:
                y = self._labels(stream, found.one("labels"))
        return Decoded(x, y, self.publication.classes)

    def _from_npz(self, found: Found) -> Decoded:
        path = found.one("npz")
        classes = self.publication.classes
        with open_npz(path) as archive:
            features, marks = archive.pick("features", "x", "X", "data"), archive.pick("labels", "y", "Y", "label")
            with archive.open(features) as stored, archive.open(marks) as stored_labels:
                self._check_shape(stored.shape, stored.where)
                y, width = labels.flat_labels(stored_labels.labels(stored.shape[0]), stored_labels.where)
                x = stored.binary()
        if width is not None and width != classes:
            raise wrong(path, f"one-hot labels of {width} classes; {self.name} has {classes}")
        # Integers in circulation count from 0 or from 1; only a full range from 1 has the number of classes in it.
        first = 1 if len(y) and int(y.max()) == classes else 0
        return Decoded(x, labels.from_published(y, classes, first, path), classes)

    def _check_shape(self, shape: tuple[int, ...], where: object) -> None:
        if shape[1:] not in self.publication.shapes:
            right = " or ".join(str(s[0]) for s in self.publication.shapes)
            raise wrong(where, f"is of shape {shape}; {self.name} has [records, {right}]")
        if shape[0] > self.publication.records:
            raise wrong(where, f"claims {shape[0]:,} records; {self.name} has {self.publication.records:,}")

    def _limit(self) -> int:
        """More bytes than any sane spelling of the records takes."""
        return 8 * self.publication.records * (self.publication.shapes[-1][0] + 1)

    def _most_lines(self) -> int:
        """Empty ones are passed over; a record too many is counted where all are."""
        return 2 * self.publication.records + 100

    def _rows(self, stream: BinaryIO, where: object) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        widths = tuple(shape[0] for shape in self.publication.shapes)
        x, y = binary_rows(stream, where, widths, self._most_lines(), labelled=self.one_file is not None)
        return x, labels.from_published(y, self.publication.classes, 1, where) if self.one_file else y

    def _labels(self, stream: BinaryIO, where: object) -> NDArray[np.int64]:
        numbers = [
            _label(line, where, number)
            for block, at in lines(stream, where, 64, self._most_lines())
            for number, line in enumerate(block, at)
        ]
        return labels.from_published(np.array(numbers, dtype=np.int64), self.publication.classes, 1, where)


def binary_rows(
    stream: BinaryIO, where: object, widths: tuple[int, ...], most: int, labelled: bool
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """At most `most` lines of zeros and ones, comma-separated, after a label if `labelled`; one of `widths` for all."""
    blocks: list[NDArray[np.uint8]] = []
    y: list[int] = []
    width = 0
    for block, at in lines(stream, where, 32 * (max(widths) + 1), most):
        if labelled:
            split = [line.partition(b",") for line in block]
            y += [_label(head, where, number) for number, (head, _, _) in enumerate(split, at)]
            block = [rest for _, _, rest in split]
        if not width:
            width = block[0].count(b",") + 1
            if width not in widths:
                right = " or ".join(str(w) for w in widths)
                raise wrong(where, f"line {at} has {width} features; {right} are expected")
        blocks.append(_block(block, at, width, where))
    x = np.concatenate(blocks) if blocks else np.empty((0, widths[0]), np.uint8)
    return x, np.array(y, dtype=np.int64)


def _label(text: bytes, where: object, number: int) -> int:
    stripped = text.strip().strip(b'"').strip()
    try:
        value = float(stripped)
    except ValueError:
        value = -1.0
    if not (value == int(value) if abs(value) < 1e9 else False) or value < 0:
        raise wrong(
            where, f"line {number} has the label {text[:40].decode('utf-8', 'replace')!r}; a number is expected"
        )
    return int(value)


def _block(lines: list[bytes], at: int, width: int, where: object) -> NDArray[np.uint8]:
    """Rows of one block. As published every value is one character, so that a row is every other byte."""
    if all(len(line) == 2 * width - 1 for line in lines):
        cells = np.frombuffer(b",".join([*lines, b""]), dtype=np.uint8).reshape(len(lines), 2 * width)
        values = cells[:, ::2] - ord("0")
        if (values <= 1).all() and (cells[:, 1::2] == ord(",")).all():
            return values
    rows = np.empty((len(lines), width), np.uint8)
    for row, line in enumerate(lines):
        texts = line.replace(b'"', b"").split(b",")
        if len(texts) != width:
            raise wrong(
                where, f"line {at + row} has {len(texts)} features; {width} are expected (was the file cut short?)"
            )
        for column, text in enumerate(texts):
            value = text.strip()
            if value not in _ZERO and value not in _ONE:
                shown = value[:40].decode("utf-8", "replace")
                raise wrong(where, f"line {at + row} has the feature {shown!r}; only 0 and 1 are expected")
            rows[row, column] = value in _ONE
    return rows


_ZERO = frozenset((b"0", b"0.0", b"0.", b"0.000000000000000000e+00"))
_ONE = frozenset((b"1", b"1.0", b"1.", b"1.000000000000000000e+00"))
