"""STL-10: larger pictures of ten things (Coates et al., 2011); its labelled part."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scapegoat.data import labels
from scapegoat.data.base import register
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.locate import FileLayout, Found, Publication
from scapegoat.data.files.published import PublishedPictures
from scapegoat.data.formats.safe_io import open_bytes, tar_members, wrong

_PARTS = ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")
_PICTURE = 3 * 96 * 96
_MOST = 8_000
_LARGEST = _MOST * _PICTURE
# The unlabelled pictures in it take 2.8 GB.
_LARGEST_ARCHIVE = 4 << 30


@register("stl10")
class STL10(PublishedPictures):
    """13,000 pictures of 3 x 96 x 96, the last 8,000 of them for testing, 10 classes; the unlabelled are not read."""

    shift: ClassVar[tuple[float, ...]] = (127.5,)
    scale: ClassVar[tuple[float, ...]] = (127.5,)
    publication: ClassVar[Publication] = Publication(
        home="https://cs.stanford.edu/~acoates/stl10/ (stl10_binary.tar.gz)",
        layouts=(
            FileLayout("binary files", {part: (part, f"stl10_binary/{part}") for part in _PARTS}),
            FileLayout("binary archive", {"archive": ("stl10_binary.tar.gz",)}),
        ),
        records=13_000,
        shapes=((3, 96, 96),),
        classes=10,
        test=8_000,
        checksums={
            "stl10_binary.tar.gz": "md5:91f7769df0f17e558f3565bffb0c7dfb",
            "train_X.bin": "md5:918c2871b30a85fa023e0c44e0bee87f",
            "train_y.bin": "md5:5a34089d4802c674881badbb80307741",
            "test_X.bin": "md5:7f263ba9f9e0b06b93213547f721ac82",
            "test_y.bin": "md5:36f9794fa4beb8a2c72628de14fa638e",
        },
    )

    def decode(self, found: Found) -> Decoded:
        """Training pictures, then test pictures."""
        content: dict[str, bytes] = {}
        if "archive" in found.files:
            path = found.one("archive")
            for name, stream in tar_members(path, _PARTS, _LARGEST_ARCHIVE):
                content[name] = stream.read(_largest(name) + 1)
                if len(content) == len(_PARTS):
                    break  # what follows is the unlabelled part, 2.8 GB
            lacking = [part for part in _PARTS if part not in content]
            if lacking:
                raise wrong(path, f"lacks {', '.join(lacking)}")
        else:
            for part in _PARTS:
                with open_bytes(found.one(part), _largest(part) + 1) as stream:
                    content[part] = stream.read(_largest(part) + 1)
        where = {part: found.one("archive" if "archive" in found.files else part) for part in _PARTS}
        parts = [
            (_pictures(content[f"{s}_X.bin"], where[f"{s}_X.bin"]), _labels(content[f"{s}_y.bin"], where[f"{s}_y.bin"]))
            for s in ("train", "test")
        ]
        for split, (x, y) in zip(("train", "test"), parts, strict=True):
            if len(x) != len(y):
                raise wrong(
                    where[f"{split}_X.bin"],
                    f"{len(x):,} pictures but {len(y):,} labels; there must be one each",
                )
        x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return Decoded(x, y, 10, len(parts[1][1]))


def _largest(part: str) -> int:
    return _LARGEST if part.endswith("_X.bin") else _MOST


def _pictures(content: bytes, where: object) -> NDArray[np.uint8]:
    """Pictures are stored channel by channel and column by column."""
    if not content or len(content) % _PICTURE or len(content) > _LARGEST:
        raise wrong(
            where, f"has {len(content):,} bytes, not a multiple of {_PICTURE:,} (3 x 96 x 96) up to 8,000 of them"
        )
    return np.frombuffer(content, np.uint8).reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)


def _labels(content: bytes, where: object) -> NDArray[np.int64]:
    if len(content) > _MOST:
        raise wrong(where, f"has more than {_MOST:,} labels, a byte each")
    return labels.from_published(np.frombuffer(content, np.uint8).astype(np.int64), 10, 1, where)
