"""`python -m results`: small files from many runs, and the page of the paper's claims made from them."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from results import files
from results.page import page
from scapegoat.errors import InputError, RunError
from scapegoat.files import write_text
from scapegoat.terminal import printable


def main(arguments: list[str] | None = None) -> int:
    """Collect runs or write the page; the exit code."""
    parser = argparse.ArgumentParser("python -m results", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="one small Parquet file from a folder of runs")
    collecting.add_argument("directory", type=Path, help="a folder of runs (`scapegoat sweep --out`)")
    collecting.add_argument("--out", type=Path, required=True, help="the Parquet file to write")
    writing = commands.add_parser("page", help="each of the paper's claims, what was measured, and whether it holds")
    writing.add_argument("folder", type=Path, help="the folder with the result files")
    writing.add_argument("--out", type=Path, required=True, help="the Markdown file to write")
    options = parser.parse_args(arguments)
    try:
        if options.command == "collect":
            collect(options.directory, options.out)
        else:
            write_page(options.folder, options.out)
    except (InputError, RunError) as error:
        print(printable(f"results: {error}"), file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def collect(directory: Path, out: Path) -> None:
    """Write one row per finished run: its spec, its figures with intervals, seconds, versions, date."""
    table = files.collect(directory, lambda what, why: print(printable(f"left out: {what} ({why})"), file=sys.stderr))
    files.save(table, out)
    print(f"{table.num_rows} runs in {out} ({out.stat().st_size / 1024:.0f} kB)")


def write_page(folder: Path, out: Path) -> None:
    """Write each of the paper's claims, what was measured, and whether it holds."""
    text = page(folder, command=shlex.join(["python", "-m", "results", "page", str(folder), "--out", str(out)]))
    try:
        write_text(out, text)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({error.strerror or error})") from None
    print(f"written: {out}")


if __name__ == "__main__":
    sys.exit(main())
