"""What the audits of live federations print."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer


def add_group(app: typer.Typer, name: str, help_: str, audit: Callable[..., None]) -> None:
    """Add a framework's group of commands, of which its audit is one."""
    group = typer.Typer(help=help_, no_args_is_help=True)
    group.command("audit")(audit)
    group.callback()(lambda: None)  # a group with one command would be that command
    app.add_typer(group, name=name)


@contextlib.contextmanager
def progressing(what: str, rounds: int | None, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """A line on a terminal that counts the rounds; elsewhere nothing."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what}: starting the processes") as status:
        yield lambda done: status.update(f"{what}: round {done}" + (f" of {rounds}" if rounds else ""))


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def conclude(results: list[dict[str, Any]], out: Path, report: Path | None, as_json: bool) -> None:
    """Write the report if one is asked for, and print the summaries."""
    if report is not None:
        from scapegoat import report as reports

        reports.write_html(reports.build(out), report)
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        show(results, out, report)


def show(results: list[dict[str, Any]], out: Path, report: Path | None) -> None:
    """A table of the runs, what went wrong in them, and where everything is."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("attack", "defense", "where", "rounds", "best accuracy", "AUC", "hostile kept", "scapegoats", "test"):
        table.add_column(name, justify="left" if name in ("attack", "defense", "where") else "right")
    for summary in results:
        membership, aggregation = summary["membership"], summary["aggregation"]
        low, high = membership["accuracy_best_ci"]
        test = summary["test_accuracy"]
        table.add_row(
            summary["attack"],
            summary["defense"],
            "live" if summary.get("live") else "simulated",
            str(summary["rounds"]),
            f"{membership['accuracy_best']:.3f} [{low:.3f}, {high:.3f}]",
            f"{membership['auc']:.3f}",
            _rate(aggregation["malicious_kept_rate"]),
            _rate(aggregation["scapegoat_rate"]),
            "-" if test is None else f"{test:.3f}",
        )
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for summary in results:
        happened, what = summary.get("live", {}), f"{summary['attack']} against {summary['defense']}"
        trouble = {k: v for k, v in happened.items() if k not in ("observed_rounds", "unbounded_rounds") and v}
        if trouble:
            said = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in trouble.items())
            console.print(f"{what}: {said}; the logs say why", soft_wrap=True)
        if unbounded := happened.get("unbounded_rounds"):
            console.print(
                f"{what}: no poison was sent in {unbounded} of {summary['rounds']} rounds, in which fewer than two "
                "hostile nodes were picked: it has no bound then to hide within",
                soft_wrap=True,
            )
    console.print(f"runs and logs are in {out}" + (f", the report in {report}" if report else ""), soft_wrap=True)
