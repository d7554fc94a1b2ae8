"""`scapegoat results`: small files from many runs, and the page of the paper's claims made from them."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

results = typer.Typer(help="Collect runs into small files; hold the paper's claims against them.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(results, name="results")


@results.command("collect")
def collect(
    directory: Path = typer.Argument(..., help="A folder of runs (`scapegoat sweep --out`)."),
    out: Path = typer.Option(..., "--out", help="The Parquet file to write."),
) -> None:
    """Write one row a finished run: its spec, its figures with intervals, seconds, versions, date."""
    from scapegoat.experiments import results as files

    table = files.collect(directory, lambda run, problem: typer.echo(f"left out: run {run} ({problem})", err=True))
    files.save(table, out)
    print(f"{table.num_rows} runs in {out} ({out.stat().st_size / 1024:.0f} kB)")


@results.command("page")
def page(
    folder: Path = typer.Argument(..., help="The folder with the result files."),
    out: Path = typer.Option(..., "--out", help="The Markdown file to write."),
) -> None:
    """Write each of the paper's claims, what was measured, and whether it holds."""
    from scapegoat.errors import InputError
    from scapegoat.files import write_text
    from scapegoat.report.results import page as make

    text = make(folder, command=shlex.join(["scapegoat", "results", "page", str(folder), "--out", str(out)]))
    try:
        write_text(out, text)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({error.strerror or error})") from None
    print(f"written: {out}")
