"""CIFAR-10: small colour pictures of ten things (Krizhevsky, 2009)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scapegoat.data import labels
from scapegoat.data.base import register
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.locate import FileLayout, Found, Publication
from scapegoat.data.files.published import PublishedPictures
from scapegoat.data.formats.pictures import decode_all
from scapegoat.data.formats.safe_io import open_bytes, tar_members, wrong
from scapegoat.data.formats.tables import LABELS, PICTURES, numbers, open_parquet, pick, picture_bytes
from scapegoat.data.formats.unpickle import load_dict, uint8_array

_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_RECORD = 1 + 3 * 32 * 32
_LARGEST_BATCH = 64 << 20
_LARGEST_ARCHIVE = 1 << 28

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _names(folder: str, suffix: str) -> dict[str, tuple[str, ...]]:
    return {batch: (f"{batch}{suffix}", f"{folder}/{batch}{suffix}") for batch in _BATCHES}


def _shards(split: str) -> tuple[str, ...]:
    shards = f"{split}-*-of-*.parquet"
    return (f"{split}.parquet", shards, f"plain_text/{shards}", f"data/{shards}")


@register("cifar10")
class CIFAR10(PublishedPictures):
    """60,000 pictures of 3 x 32 x 32, the last 10,000 of them for testing, 10 classes.

    Binary batches or python batches, on their own or in the published archive, or Parquet with one picture per row.
    """

    shift: ClassVar[tuple[float, ...]] = (125.3, 123.0, 113.9)
    scale: ClassVar[tuple[float, ...]] = (63.0, 62.1, 66.7)
    publication: ClassVar[Publication] = Publication(
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        layouts=(
            FileLayout(
                "binary batches",
                _names("cifar-10-batches-bin", ".bin"),
                "data_batch_1.bin to data_batch_5.bin and test_batch.bin",
            ),
            FileLayout("binary archive", {"binary": ("cifar-10-binary.tar.gz",)}),
            FileLayout(
                "python batches",
                _names("cifar-10-batches-py", ""),
                "data_batch_1 to data_batch_5 and test_batch",
            ),
            FileLayout("python archive", {"python": ("cifar-10-python.tar.gz",)}),
            FileLayout("Parquet", {"train": _shards("train"), "test": _shards("test")}),
        ),
        records=60_000,
        shapes=((3, 32, 32),),
        classes=10,
        test=10_000,
        checksums={
            "cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530",
            "cifar-10-python.tar.gz": "md5:c58f30108f718f92721af3b95e74349a",
            "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
            "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
            "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "md5:40351d587109b95175f43aff81a1287e",
        },
    )

    def decode(self, found: Found) -> Decoded:
        """Pictures and labels of any of the layouts, the test pictures last."""
        if "train" in found.files:
            train = [_parquet(path) for path in found.files["train"]]
            test = [_parquet(path) for path in found.files["test"]]
            return _joined([*train, *test], sum(len(y) for _, y in test))
        if "binary" in found.files:
            batches = _from_archive(found.one("binary"), ".bin", _binary_batch)
        elif "python" in found.files:
            batches = _from_archive(found.one("python"), "", _python_batch)
        else:
            parse = _binary_batch if found.one("test_batch").suffix == ".bin" else _python_batch
            batches = [_from_file(found.one(batch), parse) for batch in _BATCHES]
        _check_counts([len(y) for _, y in batches], found)
        return _joined(batches, len(batches[-1][1]))


def _check_counts(counts: list[int], found: Found) -> None:
    """Batches are published with as many pictures each: one that is shorter was cut, even if between two pictures."""
    usual = max(counts[:-1])
    for name, count in zip(_BATCHES, counts, strict=True):
        if count < usual and (name != "test_batch" or usual == 10_000):
            raise wrong(found.folder, f"{name} holds {count:,} pictures where other batches hold {usual:,}: cut short?")


def _joined(batches: list[Batch], test: int) -> Decoded:
    x = np.concatenate([x for x, _ in batches])
    return Decoded(x, np.concatenate([y for _, y in batches]), 10, test)


def _from_file(path: Path, parse: Callable[[bytes, object], Batch]) -> Batch:
    size = path.stat().st_size
    if size > _LARGEST_BATCH:
        raise wrong(path, f"has {size:,} bytes; a batch of 10,000 pictures has {10_000 * _RECORD:,}")
    with open_bytes(path, _LARGEST_BATCH) as stream:
        return parse(stream.read(), path)


def _from_archive(path: Path, suffix: str, parse: Callable[[bytes, object], Batch]) -> list[Batch]:
    wanted = [batch + suffix for batch in _BATCHES]
    batches: dict[str, Batch] = {}
    for name, stream in tar_members(path, wanted, _LARGEST_ARCHIVE):
        batches[name] = parse(stream.read(_LARGEST_BATCH), f"{path} ({name})")
    lacking = [name for name in wanted if name not in batches]
    if lacking:
        raise wrong(path, f"lacks {', '.join(lacking)}")
    return [batches[name] for name in wanted]


def _binary_batch(content: bytes, where: object) -> Batch:
    """One byte of label and 3,072 of pixels per picture, channel by channel."""
    if not content or len(content) % _RECORD:
        raise wrong(
            where, f"has {len(content):,} bytes, not a multiple of {_RECORD:,} (a label and a picture): cut short?"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    y = labels.from_published(rows[:, 0].astype(np.int64), 10, 0, where)
    return rows[:, 1:].reshape(-1, 3, 32, 32), y


def _python_batch(content: bytes, where: object) -> Batch:
    """A pickled dictionary with `data` [N, 3072] and `labels`."""
    batch = load_dict(content, where)
    if "data" not in batch or "labels" not in batch:
        raise wrong(where, f"has {', '.join(sorted(batch)) or 'nothing'}; `data` and `labels` are expected")
    x = uint8_array(batch["data"], where)
    if x.ndim != 2 or x.shape[1] != _RECORD - 1:
        raise wrong(where, f"data of shape {x.shape}; [pictures, 3072] is expected")
    return x.reshape(-1, 3, 32, 32), _pickled_labels(batch["labels"], len(x), where)


def _pickled_labels(values: Any, count: int, where: object) -> NDArray[np.int64]:
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v < 10 for v in values):
        raise wrong(where, "labels that are not a list of numbers from 0 to 9")
    if len(values) != count:
        raise wrong(where, f"{count:,} pictures but {len(values):,} labels; one label per picture is expected")
    return np.array(values, dtype=np.int64)


def _parquet(path: Path) -> Batch:
    with open_parquet(path) as table:
        y = labels.whole_numbers(numbers(table, pick(table, path, LABELS), path), path)
        pictures = picture_bytes(table, pick(table, path, PICTURES), path)
        x = decode_all(pictures, f"cifar10 ({path.name})", colour="rgb", expect=(32, 32))
    return x, labels.from_published(y, 10, 0, path)
