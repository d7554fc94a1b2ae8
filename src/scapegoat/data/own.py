"""What the readers of a user's own files share."""

from __future__ import annotations

import functools
import hashlib
import logging
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from scapegoat.data import cache
from scapegoat.data.base import Dataset, DataSpec
from scapegoat.data.cache import Decoded
from scapegoat.data.labels import MOST_CLASSES
from scapegoat.data.published import check_arrays
from scapegoat.data.streams import digest, reading, wrong

log = logging.getLogger("scapegoat.data")


class OwnData(DataSpec):
    """A user's own data set. `path` is looked up from the current folder, then below the data roots.

    `content` is the fingerprint that the data must have; a run fills it in, so that a changed file is another run.
    """

    path: str = Field(min_length=1)
    content: str | None = None

    @property
    def title(self) -> str:
        """What messages call the data set."""
        return f"{self.name}:{self.path}"

    def find(self, roots: list[Path]) -> Path:
        """The file or folder behind `path`."""
        given = Path(self.path).expanduser()
        for candidate in [given, *(root / given for root in roots)]:
            if candidate.exists():
                return candidate
        looked = ", ".join(str(folder) for folder in [Path.cwd(), *roots])
        raise wrong(self.path, f"no such file or folder (looked in {looked})")

    def decode(self, path: Path) -> Decoded:
        """Records and labels from the file or folder."""
        raise NotImplementedError

    def read(self, roots: list[Path]) -> Dataset:
        """The records, decoded once and kept."""
        path = self.find(roots)
        if self.content is not None and self.content != self.fingerprint(roots):
            raise wrong(path, "has changed since the run was planned (its content is not what data.content says)")
        recipe = f"{self.name}/2/{self.model_dump_json(exclude={'path', 'content', 'train', 'test', 'validation'})}"
        with reading(path):
            decoded = cache.decoded(self.name, recipe, [path], lambda: self._checked(path))
        if decoded.note:
            _tell(f"{self.title}: {decoded.note}")
        shift, scale = self.normalization(decoded)
        return Dataset(
            name=self.title,
            x=torch.from_numpy(decoded.x),
            y=torch.from_numpy(decoded.y),
            classes=decoded.classes,
            published_test=decoded.test,
            shift=shift,
            scale=scale,
        )

    def normalization(self, decoded: Decoded) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Pictures (bytes with channels) to -1..1; anything else stays as it is."""
        return ((127.5,), (127.5,)) if _is_pictures(decoded.x) else ((0.0,), (1.0,))

    def fingerprint(self, roots: list[Path]) -> str | None:
        """SHA-256 of the content; for a folder, of the names and contents of all its files."""
        path = self.find(roots)
        if path.is_file():
            return digest(path)
        state = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            state.update(f"{file.relative_to(path).as_posix()}\0{digest(file)}\n".encode())
        return state.hexdigest()

    def _checked(self, path: Path) -> Decoded:
        decoded = self.decode(path)
        check_arrays(decoded, path)
        return decoded


class OwnRecords(OwnData):
    """Records with a label each.

    With `classes` the labels are 0..classes-1 and stay as they are; else they are numbered in their order. With
    `tokens` the values are ids for a model to look up (`nn.Embedding`) and stay integers. With `standardize` every
    feature gets mean 0, variance 1.
    """

    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] | None = None
    tokens: bool = False
    standardize: bool = False


@functools.cache
def _tell(message: str) -> None:
    """Warn once, however often the data set is read."""
    log.warning(message)


def standardization(x: NDArray[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every feature; a constant feature keeps scale 1."""
    mean = x.mean(axis=0, dtype=np.float64)
    spread = x.std(axis=0, dtype=np.float64)
    spread[spread < 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    return tuple(mean.tolist()), tuple(spread.tolist())


def _is_pictures(x: NDArray[Any]) -> bool:
    return x.dtype == np.uint8 and x.ndim == 4
