"""What is there: where data sets were found, and whether they are whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scapegoat.data.base import DataSpec, get, registry
from scapegoat.data.locate import Found, Publication, find, locate
from scapegoat.data.own import OwnData
from scapegoat.data.published import PublishedData, differing_counts
from scapegoat.data.streams import digest
from scapegoat.errors import DataError


@dataclass(frozen=True)
class Place:
    """A data set that scapegoat knows: where it was found, else what is wanted and where it is published."""

    name: str
    found: Found | None = None
    publication: Publication | None = None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        files = [str(path) for path in self.found.all_files()] if self.found else []
        generated = self.publication is None
        return {
            "name": self.name,
            "status": "generated" if generated else "found" if self.found else "missing",
            "layout": self.found.layout.title if self.found else None,
            "files": files,
            "wanted": [layout.wanted() for layout in self.publication.layouts] if self.publication else [],
            "home": self.publication.home if self.publication else None,
        }


def places(searched: list[Path]) -> list[Place]:
    """Every data set by name; a user's own kinds (`npz:` and so on) have no place of their own."""
    known = []
    for name, cls in registry.classes():
        if issubclass(cls, OwnData):
            continue
        if issubclass(cls, PublishedData):
            known.append(Place(name, find(name, cls.publication, searched), cls.publication))
        else:
            known.append(Place(name))
    return known


@dataclass(frozen=True)
class Verdict:
    """What reading a data set from start to end showed; it is whole where there are no problems."""

    name: str
    where: str
    records: int
    shape: tuple[int, ...]
    classes: int
    test: int
    problems: list[str] = field(default_factory=list)
    checksums: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether everything is as published."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**vars(self), "shape": list(self.shape), "whole": self.whole}


def check(name: str, searched: list[Path]) -> Verdict:
    """Read a data set anew, past the cache, and compare it with what is published.

    Raises DataError where it is missing or cannot be read at all.
    """
    spec = get(name)
    if isinstance(spec, PublishedData):
        return check_published(spec, locate(spec.name, spec.publication, searched))
    dataset = spec.read(searched)
    where = str(spec.find(searched)) if isinstance(spec, OwnData) else "generated"
    return Verdict(name, where, len(dataset), dataset.input_shape, dataset.classes, dataset.published_test)


def check_published(spec: PublishedData, found: Found, renamed: Mapping[Path, str] | None = None) -> Verdict:
    """As `check`, for files that were found already; `renamed` has the published names of those under another one."""
    decoded = spec.checked(found)
    published = spec.publication
    problems = differing_counts(decoded, published)
    present = len(set(decoded.y.tolist()))
    if present != published.classes:
        problems.append(f"{present} of the {published.classes} classes occur")
    names = {path: path.name for path in found.all_files()} | dict(renamed or {})
    checksums = {name: _compare(path, published.checksums.get(name)) for path, name in names.items() if path.is_file()}
    problems += [
        f"{file} differs from its published checksum" for file, state in checksums.items() if state == "differs"
    ]
    shape = tuple(decoded.x.shape[1:])
    return Verdict(
        spec.name, str(found.where), len(decoded.y), shape, decoded.classes, decoded.test, problems, checksums
    )


def _compare(path: Path, published: str | None) -> str:
    if published is None:
        return "none published"
    algorithm, _, right = published.partition(":")
    return "as published" if digest(path, algorithm) == right else "differs"


def published_spec(name: str) -> PublishedData:
    """The reader of a data set that has files of its own, else a DataError that says what to do instead."""
    spec: DataSpec = get(name)
    if isinstance(spec, PublishedData):
        return spec
    if isinstance(spec, OwnData):
        raise DataError(f"{name}: your own files need no import; name them in the spec, data: {{name: {name}}}")
    raise DataError(f"{name}: is generated and needs no files")
