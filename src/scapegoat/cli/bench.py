"""`scapegoat bench`: speed, as ratios measured in one run."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
from typing import Any

import typer

THREADED = ("aggregation", "attack", "round")
"""What can be measured with any number of threads."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench)


def bench(
    what: str = typer.Argument(..., help="aggregation, attack, round, sweep or flower."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
    quick: bool = typer.Option(False, "--quick", help="Smaller sizes and fewer repeats."),
    threads: int | None = typer.Option(
        None, "--threads", min=1, help="PyTorch's threads (default: 2 for aggregation, 1 for attack and round)."
    ),
) -> None:
    """Measure how fast things are, each beside what it is compared with, in one run."""
    from scapegoat.errors import InputError

    known = ("aggregation", "attack", "flower", "round", "sweep")
    if what not in known:
        raise InputError(f"bench {what!r}: one of {', '.join(known)} is wanted")
    if threads is not None and what not in THREADED:
        raise InputError(f"bench {what}: --threads is only for {', '.join(THREADED)}")
    _show_progress()
    options = {} if threads is None else {"threads": threads}
    figures = importlib.import_module(f"scapegoat.experiments.bench.{what}").run(quick=quick, **options)
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        _print(figures)


def _show_progress() -> None:
    """What is being measured, on stderr: some of it takes minutes."""
    log = logging.getLogger("scapegoat.bench")
    log.setLevel(logging.INFO)
    if not log.handlers:
        log.addHandler(logging.StreamHandler())


def _print(value: Any, indent: int = 0) -> None:
    pad = "  " * indent
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list):
            print(f"{pad}{key}:")
            _print(item, indent + 1)
        else:
            print(f"{pad}{key}: {item:.4g}" if isinstance(item, float) else f"{pad}{key}: {item}")
