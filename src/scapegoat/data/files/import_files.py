"""Taking local files in: checked first, then copied so that they are there whole or not at all."""

from __future__ import annotations

import fnmatch
import shutil
from pathlib import Path

from scapegoat.data.files.inventory import Inspection, check_published, published_spec
from scapegoat.data.files.locate import FileLayout, Found, Publication, match, roots
from scapegoat.data.files.published import not_whole
from scapegoat.data.formats.safe_io import digest, reading, regular, wrong
from scapegoat.errors import DataError
from scapegoat.files import whole, whole_folder


def import_files(name: str, files: list[Path], root: str | Path | None = None) -> tuple[list[Path], Inspection]:
    """Copy the files of a data set into the first data root; returns where they are now and what checking them showed.

    A file under another name than the published one is told by its ending. Files that belong to a layout of several may
    be taken in together, or one after the other once the rest is there. Nothing is copied unless all is as published.
    """
    spec = published_spec(name)
    target = roots(root)[0] / spec.name
    given = _expanded(files)
    found, renamed = _as_layout(spec.name, spec.publication, given, target)
    inspection = check_published(spec, found, renamed)
    if inspection.problems:
        raise not_whole(spec.name, inspection.problems, found.where)
    with reading(target):
        target.mkdir(parents=True, exist_ok=True)
        return [_copy(source, target / file) for source, file in renamed.items()], inspection


def _expanded(files: list[Path]) -> list[Path]:
    """Files, and for a folder that is not itself part of a data set what lies in it."""
    given: list[Path] = []
    for path in files:
        if not path.exists():
            raise wrong(path, "no such file")
        inside = path.is_dir() and path.name not in ("train", "test")
        given += sorted(p for p in path.iterdir() if not p.name.startswith(".")) if inside else [path]
    for path in given:
        if not path.is_dir():
            regular(path)
    return given


def _as_layout(name: str, publication: Publication, given: list[Path], target: Path) -> tuple[Found, dict[Path, str]]:
    """The layout that the files make up (with those already in `target`), and the name each will have there."""
    nearest: list[str] | None = None
    for layout in publication.layouts:
        taken: dict[Path, str] = {}
        matched: dict[str, tuple[Path, ...]] = {}
        for role, names in layout.files.items():
            hits = tuple(path for path in given if _matches(path.name, names))
            if not hits and len(layout.files) == 1 and len(given) == 1:
                alike = next((known for known in names if _same_ending(given[0], known)), None)
                if alike is not None:
                    hits = (given[0],)
                    taken[given[0]] = alike
            for path in hits:
                taken.setdefault(path, path.name)
            matched[role] = hits or _present(target, names)
        if not taken:
            continue
        lacking = [layout.files[role][0] for role, paths in matched.items() if not paths]
        if not lacking:
            folder = given[0].parent
            return Found(folder, layout, matched), taken
        nearest = lacking if nearest is None or len(lacking) < len(nearest) else nearest
    if nearest is not None:
        raise wrong(given[0], f"{name} also needs {', '.join(nearest)}; give all of its files at once")
    forms = "; or ".join(layout.wanted() for layout in publication.layouts)
    raise wrong(given[0] if given else name, f"is no file of {name}, which consists of {forms}")


def _matches(file: str, names: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(file, name.rpartition("/")[2]) for name in names)


def _same_ending(path: Path, name: str) -> bool:
    ending = "".join(Path(name).suffixes) if name.endswith(".gz") else Path(name).suffix
    return bool(ending) and path.is_file() and path.name.endswith(ending)


def _present(target: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    return match(target, FileLayout("", {"": names}))[""]


def _copy(source: Path, destination: Path) -> Path:
    if destination.exists() and source.resolve() == destination.resolve():
        return destination
    if source.is_dir():
        if destination.exists():
            raise wrong(destination, "is there already; remove it first")
        with whole_folder(destination, durable=False) as draft:  # the source is still there
            shutil.copytree(source, draft, dirs_exist_ok=True)
        return destination
    with whole(destination) as draft:
        shutil.copyfile(source, draft)
        if digest(draft) != digest(source):
            raise DataError(f"{source}: changed while it was copied; try again")
    return destination
