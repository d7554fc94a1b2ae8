"""Where the files of a data set are looked for, and what is expected where they are missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scapegoat.data.formats.safe_io import wrong
from scapegoat.errors import DataError


def roots(root: str | Path | None = None) -> list[Path]:
    """The folders that are searched for data sets.

    Parameters
    ----------
    root: searched first, if given.

    Returns
    -------
    `root`, the folders of SCAPEGOAT_DATA (one or several, as in PATH) and ./data, in this order.

    Examples
    --------
    >>> str(roots("records")[0]), str(roots()[-1])
    ('records', 'data')
    """
    named = [str(root)] if root is not None else []
    named += [part for part in os.environ.get("SCAPEGOAT_DATA", "").split(os.pathsep) if part]
    found = [Path(part).expanduser() for part in [*named, "data"]]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class FileLayout:
    """One form in which a data set is published: files that are expected together.

    `files` maps what a file is for to the names that it may go by, each a path relative to the data set's folder in
    which `*` stands for shards. `summary` says in short what is expected where the names alone would not.
    """

    title: str
    files: Mapping[str, tuple[str, ...]]
    summary: str | None = None

    def wanted(self) -> str:
        """The files for messages: `summary`, or the first name of every file."""
        if self.summary is not None:
            return self.summary
        names = [names[0] for names in self.files.values()]
        return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


@dataclass(frozen=True)
class Download:
    """A file that `scapegoat data fetch` can get."""

    url: str
    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Publication:
    """What the publisher says about a data set.

    `shapes` are the shapes of a record that are in circulation. `checksums` maps a file's name to `algorithm:digest`;
    `content` is the digest of the decoded records and labels (see `inventory.content_digest`), which is the same
    whatever form the files have.
    """

    home: str
    layouts: tuple[FileLayout, ...]
    records: int
    shapes: tuple[tuple[int, ...], ...]
    classes: int
    test: int = 0
    checksums: Mapping[str, str] = field(default_factory=dict)
    content: str | None = None
    download: Download | None = None


@dataclass(frozen=True)
class Found:
    """Files of one layout that lie together."""

    folder: Path
    layout: FileLayout
    files: Mapping[str, tuple[Path, ...]]

    def one(self, role: str) -> Path:
        """The only file of a role."""
        return self.files[role][0]

    @property
    def where(self) -> Path:
        """The file, or the folder of several: what messages speak of."""
        files = self.all_files()
        return files[0] if len(files) == 1 else self.folder

    def all_files(self) -> list[Path]:
        """Every file, in a stable order."""
        return [path for role in self.files for path in self.files[role]]


def find(name: str, publication: Publication, searched: list[Path]) -> Found | None:
    """The files of a data set: in a folder of its name below a root, or in the root itself; the first root wins."""
    return next(_complete(name, publication, searched), None)


def locate(name: str, publication: Publication, searched: list[Path]) -> Found:
    """As `find`; a DataError says what is expected, where it goes and where it is published."""
    found = find(name, publication, searched)
    if found is None:
        raise missing(name, publication, searched)
    return found


def missing(name: str, publication: Publication, searched: list[Path]) -> DataError:
    """What to do about a data set that is not there, or not all there."""
    for folder in _folders(name, searched):
        for layout in publication.layouts:
            matched = match(folder, layout)
            lacking = [layout.files[role][0] for role, paths in matched.items() if not paths]
            if len(lacking) < len(matched) and folder.name == name:
                return wrong(folder, f"{name} is incomplete there: {', '.join(lacking)} missing ({publication.home})")
    forms = "; or ".join(layout.wanted() for layout in publication.layouts)
    target = searched[0] / name
    where = ", ".join(str(root) for root in searched)
    fetch = f" `scapegoat data fetch {name}` gets it." if publication.download else ""
    return DataError(
        f"data set {name} is not there (looked in {where}): put {forms} into {target}; "
        f"published at {publication.home}.{fetch}"
    )


def _folders(name: str, searched: list[Path]) -> Iterator[Path]:
    for root in searched:
        yield root / name
        yield root


def _complete(name: str, publication: Publication, searched: list[Path]) -> Iterator[Found]:
    for folder in _folders(name, searched):
        for layout in publication.layouts:
            matched = match(folder, layout)
            if all(matched.values()):
                yield Found(folder, layout, matched)


def match(folder: Path, layout: FileLayout) -> dict[str, tuple[Path, ...]]:
    """The files of a layout that lie in a folder, by what they are for; none for what is missing."""
    matched: dict[str, tuple[Path, ...]] = {}
    for role, names in layout.files.items():
        candidates = ((folder.glob(name) if "*" in name else [folder / name]) for name in names)
        hits = (tuple(sorted(path for path in paths if path.exists())) for paths in candidates)
        matched[role] = next((paths for paths in hits if paths), ())
    return matched
