"""`scapegoat report`: a page, tables or figures from a folder of runs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path

import typer

from scapegoat.terminal import printable


class Format(StrEnum):
    """What a report can be written as."""

    html = "html"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report", short_help="A page or tables from a folder of runs.")(report)


def report(
    directory: Path = typer.Argument(..., metavar="DIR"),
    out: Path | None = typer.Option(
        None, "--out", help="File to write. Default: report.html for html; the others are printed."
    ),
    form: Format = typer.Option(Format.html, "--format", help="A page, or tables for papers and other programs."),
    title: str = typer.Option("", "--title", help="Heading of the page."),
    figures: Path | None = typer.Option(None, "--figures", help="Folder for every figure as PNG, PDF and SVG."),
) -> None:
    """Draw the report of a folder of runs: verdict, attack by defense, curves, ROC, and who was discarded.

    DIR is a folder that `audit`, `run --out` or `sweep` wrote.
    """
    from scapegoat import report as room
    from scapegoat.errors import InputError
    from scapegoat.files import write_text
    from scapegoat.findings import load

    target = out if out is not None else Path("report.html") if form is Format.html else None
    if target is not None and target.is_dir():
        raise InputError(f"--out {target}: is a folder; name a file in it")
    page = load(directory, title).page
    try:
        if form is Format.html and target is not None:
            room.write_html(page, target)
        else:
            write = {Format.markdown: room.to_markdown, Format.latex: room.to_latex, Format.csv: room.to_csv}[form]
            if target is None:
                sys.stdout.write(printable(write(page), lines=True))
            else:
                write_text(target, write(page))
        drawn = room.write_figures(page, figures) if figures is not None else []
    except OSError as error:
        raise InputError(f"{error.filename or target}: cannot be written ({error.strerror})") from None
    if target is not None:
        if len(page.studies) == 1:
            verdict = page.studies[0].verdict
            for line in (verdict.text, *(f"Note: {caveat}" for caveat in verdict.caveats)):
                print(printable(line))
        elif page.studies:
            print(f"{len(page.studies)} settings.")
        for note in page.notes:
            print(printable(f"Note: {note}"))
        print(f"Written: {target}" + (f", and {len(drawn)} figures in {figures}" if drawn else ""))
