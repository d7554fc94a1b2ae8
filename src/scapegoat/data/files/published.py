"""What the readers of published data sets share: find the files, decode them once, check what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field

from scapegoat.data.base import Dataset, DataSpec
from scapegoat.data.files import cache
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.locate import Found, Publication, locate
from scapegoat.data.formats.safe_io import reading, wrong
from scapegoat.errors import DataError


class PublishedData(DataSpec):
    """A data set with a public home. A reader says what is published and turns found files into arrays."""

    publication: ClassVar[Publication]
    shift: ClassVar[tuple[float, ...]] = (0.0,)
    scale: ClassVar[tuple[float, ...]] = (1.0,)

    @property
    def pictures(self) -> bool:
        """As published."""
        return len(self.publication.shapes[0]) > 1

    def decode(self, found: Found) -> Decoded:
        """Records and labels from the files of one layout; DataError for files that are not what they should be."""
        raise NotImplementedError

    def read(self, roots: list[Path]) -> Dataset:
        """The data set from the first root that has its files, refused unless it has as many records as published."""
        found = locate(self.name, self.publication, roots)
        sources = found.all_files()
        where = found.where
        with reading(where):
            decoded = cache.decoded(self.name, f"{self.name}/1", sources, lambda: self.checked(found))
        self.check_counts(decoded, where)
        return Dataset(
            name=self.name,
            x=torch.from_numpy(decoded.x),
            y=torch.from_numpy(decoded.y),
            classes=decoded.classes,
            published_test=decoded.test,
            shift=self.shift,
            scale=self.scale,
        )

    def checked(self, found: Found) -> Decoded:
        """Decoded again, and refused unless it has the published shape and labels."""
        where = found.where
        with reading(where):
            decoded = self.decode(found)
        check_arrays(decoded, where)
        shape = tuple(decoded.x.shape[1:])
        if shape not in self.publication.shapes:
            right = " or ".join(str(s) for s in self.publication.shapes)
            raise wrong(where, f"records of shape {shape}; those of {self.name} have shape {right}")
        return decoded

    def check_counts(self, decoded: Decoded, where: object) -> None:
        """Refuse part of the data set: text that was cut between two lines looks like a shorter file."""
        differing = differing_counts(decoded, self.publication)
        if differing:
            raise not_whole(self.name, differing, where)


class PublishedPictures(PublishedData):
    """A published set of pictures. Testing a model on all of them would take most of a round, so a part is taken."""

    test: Annotated[int, Field(ge=1)] | None = 1000
    """Test pictures; `null` takes all that are published. 1,000 tell the accuracy to 3 points (95%)."""


def differing_counts(decoded: Decoded, published: Publication) -> list[str]:
    """Where there are more or fewer records than published."""
    counts = (("records", len(decoded.y), published.records), ("test records", decoded.test, published.test))
    return [f"{has:,} {what}, published are {right:,}" for what, has, right in counts if has != right]


def not_whole(name: str, problems: list[str], where: object) -> DataError:
    """What to do about files that are not as published."""
    return wrong(
        where,
        f"is not the whole of {name}: {', '.join(problems)}; get it again (a subset that you want is data of your own, "
        "as npz:PATH or parquet:PATH)",
    )


def check_arrays(decoded: Decoded, where: object) -> None:
    """Refuse arrays that no data set can consist of."""
    if len(decoded.y) == 0:
        raise wrong(where, "holds no records")
    if len(decoded.x) != len(decoded.y):
        raise wrong(where, f"{len(decoded.x):,} records but {len(decoded.y):,} labels; there must be one each")
    low, high = (int(decoded.y.min()), int(decoded.y.max())) if decoded.labels == "classes" else (0, 0)
    if low < 0 or high >= decoded.classes:
        raise wrong(
            where, f"labels from {low} to {high}; with {decoded.classes} classes 0 to {decoded.classes - 1} is expected"
        )
    if decoded.x.dtype == np.float32 and not np.isfinite(decoded.x).all():
        row = int(np.flatnonzero(~np.isfinite(decoded.x.reshape(len(decoded.x), -1)).all(axis=1))[0])
        raise wrong(
            where, f"record {row} has a feature that is not a finite number (NaN or infinite); remove or fill it"
        )
