"""`scapegoat data`: where files are looked for, whether they are whole, taking them in, fetching them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from scapegoat.data.files.inventory import Inspection

data = typer.Typer(
    help="Data sets: where they are looked for, whether they are complete, importing and fetching them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ROOT = typer.Option(None, "--root", help="Folder of data sets, searched before SCAPEGOAT_DATA and ./data.")
JSON = typer.Option(False, "--json", help="As JSON.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(data, name="data", short_help="Where data sets are, whether they are complete; import and fetch.")


@data.command()
def where(root: Path | None = ROOT, as_json: bool = JSON) -> None:
    """Show where files are looked for and what was found there."""
    from scapegoat.data import roots
    from scapegoat.data.files import cache
    from scapegoat.data.files.inventory import places
    from scapegoat.data.formats.safe_io import human

    searched = roots(root)
    found = places(searched)
    if as_json:
        about = {"roots": [str(path) for path in searched], "cache": str(cache.folder())}
        typer.echo(json.dumps({**about, "data": [place.to_json() for place in found]}, indent=2))
        return
    typer.echo("looked in, in this order:")
    for path in searched:
        typer.echo(f"  {path}{'' if path.is_dir() else '  (not there)'}")
    used = sum(file.stat().st_size for file in cache.folder().rglob("*") if file.is_file())
    typer.echo(f"decoded records are kept in {cache.folder()} ({human(used)})\n")
    for place in found:
        if place.publication is None:
            state = "generated; needs no files"
        elif place.found is not None:
            state = f"{place.found.where}  ({place.found.layout.title})"
        else:
            forms = "; or ".join(layout.wanted() for layout in place.publication.layouts)
            state = f"missing: {forms} into {searched[0] / place.name}; from {place.publication.home}"
        typer.echo(f"{place.name:<14} {state}")


@data.command()
def check(
    names: list[str] = typer.Argument(None),
    root: Path | None = ROOT,
    as_json: bool = JSON,
) -> None:
    """Read data sets from start to end and compare them with what is published: counts, shapes, content.

    NAMES are data sets, or files of your own (npz:PATH); without any, all that are found are checked.
    """
    from scapegoat.data import roots
    from scapegoat.data.files import inventory
    from scapegoat.errors import DataError

    searched = roots(root)
    chosen = names or [place.name for place in inventory.places(searched) if place.found is not None]
    if not chosen:
        looked = ", ".join(map(str, searched))
        raise DataError(f"no data set was found in {looked}; `scapegoat data where` shows what is expected")
    inspections: list[inventory.Inspection] = []
    broken: list[str] = []
    for name in chosen:
        try:
            inspection = inventory.check(name, searched)
        except DataError as error:
            if len(chosen) == 1:
                raise
            broken.append(str(error))
            continue
        inspections.append(inspection)
        if not as_json:
            typer.echo(_sentence(inspection))
    if as_json:
        typer.echo(json.dumps({"data": [v.to_json() for v in inspections], "unreadable": broken}, indent=2))
    problems = broken + [
        f"{v.name} is not whole: {', '.join(v.problems)} ({v.where})" for v in inspections if v.problems
    ]
    if problems:
        raise DataError("; ".join(problems))


@data.command("import")
def import_(
    name: str = typer.Argument(...),
    files: list[Path] = typer.Argument(...),
    root: Path | None = ROOT,
) -> None:
    """Check local files and copy them to where they are looked for; what is not as published is not copied.

    NAME is the data set, FILES its files as published, or a folder that has them.
    """
    from scapegoat.data.files.import_files import import_files

    copied, inspection = import_files(name, files, root)
    for path in copied:
        typer.echo(f"copied to {path}")
    typer.echo(_sentence(inspection))


@data.command()
def fetch(
    name: str = typer.Argument(...),
    root: Path | None = ROOT,
    url: str | None = typer.Option(None, "--url", help="Another address of the same file; its checksum is verified."),
) -> None:
    """Fetch a data set from its public home; only a file with the published checksum is kept.

    NAME is the data set (location30).
    """
    from scapegoat.data.files.fetch import fetch as get

    typer.echo(f"{name} is in {get(name, root, url)}")


def _sentence(inspection: Inspection) -> str:
    shape = " x ".join(str(n) for n in inspection.shape)
    test = f", {inspection.test:,} of them for testing" if inspection.test else ""
    state = {
        "whole": f"whole ({inspection.compared} as published)",
        "not whole": "NOT WHOLE: " + ", ".join(inspection.problems),
        "not verified": "readable, but not verified (no checksum is published for these files)",
        "generated": "generated",
    }[inspection.state]
    count = inspection.classes
    labels = {
        "classes": f"{count} classes",
        "sets": f"up to {count} labels each",
        "numbers": "a number each" if count == 1 else f"{count} numbers each",
    }[inspection.labels]
    return f"{inspection.name}: {state}; {inspection.records:,} records of {shape}{test}, {labels} ({inspection.where})"
