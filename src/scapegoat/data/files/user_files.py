"""What the readers of a user's own files share."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr

from scapegoat.data.base import MEANT, Dataset, DataSpec
from scapegoat.data.files import cache
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.kinds import data_files
from scapegoat.data.files.published import check_arrays
from scapegoat.data.formats.safe_io import digest, reading, regular, wrong
from scapegoat.data.labels import MOST_CLASSES
from scapegoat.errors import OptionError, did_you_mean
from scapegoat.registry import added
from scapegoat.tasking.contract import LabelKind


class UserFiles(DataSpec):
    """A user's own data set. `path` is looked up from the current folder, then below the data roots.

    `content` is the fingerprint that the data must have; a run fills it in, so that a changed file is another run.
    """

    folders: ClassVar[bool] = True
    """Whether `path` may be a folder."""

    path: str = Field(min_length=1)
    """The file or folder."""
    content: str | None = None
    """The fingerprint that the files must have; a run fills it in."""

    @property
    def label_kind(self) -> LabelKind | None:
        """What labels are read as; None: as what they are found to be."""
        return None

    @property
    def title(self) -> str:
        """What messages call the data set."""
        return f"{self.name}:{self.path}"

    def find(self, roots: list[Path]) -> Path:
        """The file or folder behind `path`."""
        given = Path(self.path).expanduser()
        for candidate in [given, *(root / given for root in roots)]:
            if candidate.exists():
                return candidate if candidate.is_dir() and self.folders else regular(candidate)
        hint = did_you_mean(given.name, data_files(given.parent))
        looked = ", ".join(str(folder) for folder in [Path.cwd(), *roots])
        raise wrong(self.path, f"no such file or folder{hint} (looked in {looked})")

    def decode(self, path: Path) -> Decoded:
        """Records and labels from the file or folder."""
        raise NotImplementedError

    def read(self, roots: list[Path]) -> Dataset:
        """The records, decoded once and kept."""
        path = self.find(roots)
        if self.content is not None and self.content != self.fingerprint(roots):
            raise wrong(path, "has changed since the run was planned (its content is not what data.content says)")
        recipe = f"{self.name}/3/{self.model_dump_json(exclude={'path', 'content', 'train', 'test', 'validation'})}"
        recipe += f"/{self.label_kind}"
        with reading(path):
            decoded = cache.decoded(self.name, recipe, [path], lambda: self._checked(path))
        shift, scale = self.normalization(decoded)
        return Dataset(
            name=self.title,
            x=torch.from_numpy(decoded.x),
            y=torch.from_numpy(decoded.y),
            classes=decoded.classes,
            published_test=decoded.test,
            shift=shift,
            scale=scale,
            notes=(*decoded.notes, *self.normalization_notes(decoded)),
            labels=decoded.labels,
        )

    def normalization(self, decoded: Decoded) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Pictures (bytes with channels) to -1..1; anything else stays as it is."""
        return ((127.5,), (127.5,)) if _is_pictures(decoded.x) else ((0.0,), (1.0,))

    def normalization_notes(self, decoded: Decoded) -> tuple[str, ...]:
        """What the user should know of it."""
        return ()

    def fingerprint(self, roots: list[Path]) -> str | None:
        """SHA-256 of the content; for a folder, of the names and contents of all its files."""
        path = self.find(roots)
        if not path.is_dir():
            return digest(path)
        state = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            state.update(f"{file.relative_to(path).as_posix()}\0{digest(file)}\n".encode())
        return state.hexdigest()

    def _checked(self, path: Path) -> Decoded:
        decoded = self.decode(path)
        check_arrays(decoded, path)
        return decoded


class UserRecords(UserFiles):
    """Records with a label each.

    With `classes` the labels are 0..classes-1 and stay as they are; with `bins` they are numbers, of which so many
    ranges become the classes; else they are numbered in their order. With `tokens` the values are ids for a model to
    look up (`nn.Embedding`) and stay integers. With `standardize` every feature of records [N, features] gets mean 0
    and variance 1, whatever file they come from; pictures, sequences and tokens are left alone.
    """

    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] | None = None
    """Number of classes; none: as many as occur."""
    bins: Annotated[int, Field(ge=2, le=100)] | None = added(None)
    """Ranges that labels which are numbers are split into; none: labels are classes."""
    tokens: bool = False
    """Values are ids for a model to look up and stay integers."""
    standardize: bool = True
    """Every feature gets mean 0 and variance 1."""

    _label_kind: LabelKind | None = PrivateAttr(default=None)

    @property
    def label_kind(self) -> LabelKind | None:
        """As `labelled` was told."""
        return self._label_kind

    def labelled(self, kind: LabelKind | None) -> Self:
        """Read from the file as these."""
        if kind == self._label_kind:
            return self
        if kind not in (None, "classes") and (self.classes or self.bins):
            option = "classes" if self.classes else "bins"
            raise OptionError(
                f"data.{option}",
                f"says that labels are classes, and the task asks for {MEANT[kind]}; only one can hold",
            )
        other = self.model_copy()
        other._label_kind = kind
        return other

    def standardizes(self, decoded: Decoded) -> bool:
        """Whether there is anything to standardise."""
        return self.standardize and not self.tokens and decoded.x.ndim == 2

    def normalization(self, decoded: Decoded) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """By feature, unless switched off."""
        return standardization(decoded.x) if self.standardizes(decoded) else super().normalization(decoded)

    def normalization_notes(self, decoded: Decoded) -> tuple[str, ...]:
        """Whether the values are as in the file."""
        if self.tokens or decoded.x.ndim != 2:
            return ()
        if not self.standardize:
            return ("the features are taken as they are (data.standardize=true brings each to mean 0 and variance 1)",)
        return ("every feature was brought to mean 0 and variance 1 (data.standardize=false leaves them as they are)",)


def standardization(x: NDArray[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every feature; a constant feature keeps scale 1."""
    mean = x.mean(axis=0, dtype=np.float64)
    spread = x.std(axis=0, dtype=np.float64)
    spread[spread < 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    return tuple(mean.tolist()), tuple(spread.tolist())


def _is_pictures(x: NDArray[Any]) -> bool:
    return x.dtype == np.uint8 and x.ndim == 4
