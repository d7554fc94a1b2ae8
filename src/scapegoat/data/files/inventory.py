"""What is there: where data sets were found, and whether they are whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from scapegoat.data.base import DataSpec, get, registry
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.locate import Found, Publication, find, locate
from scapegoat.data.files.published import PublishedData, differing_counts
from scapegoat.data.files.user_files import UserFiles
from scapegoat.data.formats.safe_io import MAX_BYTES, digest, open_bytes, tar_members
from scapegoat.errors import DataError
from scapegoat.tasking.contract import LabelKind


@dataclass(frozen=True)
class Place:
    """A data set that scapegoat knows: where it was found, else what is expected and where it is published."""

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
        if issubclass(cls, UserFiles):
            continue
        if issubclass(cls, PublishedData):
            known.append(Place(name, find(name, cls.publication, searched), cls.publication))
        else:
            known.append(Place(name))
    return known


State = Literal["whole", "not whole", "not verified", "generated"]


@dataclass(frozen=True)
class Inspection:
    """What reading a data set from start to end showed.

    It is whole where its content was compared with what is published and found the same; where nothing is published to
    compare with, it is "not verified" even if there are no problems.
    """

    name: str
    where: str
    records: int
    shape: tuple[int, ...]
    classes: int
    test: int
    state: State
    problems: list[str] = field(default_factory=list)
    compared: str = ""
    """What was found to be as published: the decoded content, or files."""
    labels: LabelKind = "classes"
    """What `classes` counts: classes, labels per record, or numbers per record."""

    @property
    def whole(self) -> bool:
        """Whether everything was compared and is as published."""
        return self.state == "whole"

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**vars(self), "shape": list(self.shape), "whole": self.whole}


def check(name: str, searched: list[Path]) -> Inspection:
    """Read a data set again, past the cache, and compare it with what is published.

    Raises DataError where it is missing or cannot be read at all.
    """
    spec = get(name)
    if isinstance(spec, PublishedData):
        return check_published(spec, locate(spec.name, spec.publication, searched))
    dataset = spec.read(searched)
    own = isinstance(spec, UserFiles)
    where = str(spec.find(searched)) if isinstance(spec, UserFiles) else "generated"
    state: State = "not verified" if own else "generated"
    return Inspection(
        name,
        where,
        len(dataset),
        dataset.input_shape,
        dataset.classes,
        dataset.published_test,
        state,
        labels=dataset.labels,
    )


def check_published(spec: PublishedData, found: Found, renamed: Mapping[Path, str] | None = None) -> Inspection:
    """As `check`, for files that were found already; `renamed` has the published names of those under another one."""
    decoded = spec.checked(found)
    published = spec.publication
    problems = differing_counts(decoded, published)
    present = len(set(decoded.y.tolist()))
    if present != published.classes:
        problems.append(f"{present} of the {published.classes} classes occur")
    if published.content is not None:
        same = content_digest(decoded) == published.content
        compared = "its records and labels" if same else ""
        # Counts that differ say it better.
        problems += [] if same or problems else ["its records or labels are not those that are published"]
    else:
        names = {path: path.name for path in found.all_files()} | dict(renamed or {})
        states = {name: _compare(path, name, published.checksums) for path, name in names.items()}
        compared = ", ".join(sorted(names.values())) if all(state == "same" for state in states.values()) else ""
        problems += [
            f"{name} differs from its published checksum" for name, state in states.items() if state == "differs"
        ]
    state: State = "not whole" if problems else "whole" if compared else "not verified"
    shape = tuple(decoded.x.shape[1:])
    return Inspection(
        spec.name, str(found.where), len(decoded.y), shape, decoded.classes, decoded.test, state, problems, compared
    )


def content_digest(decoded: Decoded) -> str:
    """SHA-256 of records and labels as a reader hands them on: the same for every form in which they are published."""
    x, y = np.ascontiguousarray(decoded.x), np.ascontiguousarray(decoded.y)
    state = hashlib.sha256(f"{x.dtype.str}{x.shape}{y.dtype.str}{decoded.classes}/{decoded.test}".encode())
    state.update(x.data)
    state.update(y.data)
    return state.hexdigest()


def _compare(path: Path, name: str, published: Mapping[str, str]) -> Literal["same", "differs", "none"]:
    """A file with its published checksum. One that was packed again may differ where what is in it does not."""
    if name not in published or not path.is_file():
        return "none"
    algorithm, _, right = published[name].partition(":")
    if digest(path, algorithm) == right:
        return "same"
    if is_packed_name(name):
        members = {member: checksum for member, checksum in published.items() if not is_packed_name(member)}
        found = {member: _digest(stream, members[member]) for member, stream in tar_members(path, members, MAX_BYTES)}
        return "same" if members and found == members else "differs"
    with open_bytes(path) as stream:
        return "same" if _digest(stream, published[name]) == published[name] else "differs"


def is_packed_name(name: str) -> bool:
    """Whether a file of this name is an archive, whose checksum depends on how it was packed."""
    return name.endswith((".tgz", ".tar.gz"))


def _digest(stream: BinaryIO, published: str) -> str:
    algorithm = published.partition(":")[0]
    state = hashlib.new(algorithm)
    while chunk := stream.read(1 << 20):
        state.update(chunk)
    return f"{algorithm}:{state.hexdigest()}"


def published_spec(name: str) -> PublishedData:
    """The reader of a data set that has files of its own, else a DataError that says what to do instead."""
    spec: DataSpec = get(name)
    if isinstance(spec, PublishedData):
        return spec
    if isinstance(spec, UserFiles):
        raise DataError(f"{name}: your own files need no import; name them in the spec, data: {{name: {name}}}")
    raise DataError(f"{name}: is generated and needs no files")
