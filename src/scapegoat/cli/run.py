"""`scapegoat run`: one federation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scapegoat.cli._folders import could_be_a_folder
from scapegoat.cli._progress import round_progress

if TYPE_CHECKING:
    from scapegoat.experiments import Result


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(
    spec: Path | None = typer.Argument(None, help="YAML file; without one, the defaults.", show_default=False),
    set_: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Override a key, e.g. federation.rounds=100."
    ),
    out: Path | None = typer.Option(None, "--out", help="Folder to keep the run in; it can be stopped and resumed."),
    root: Path | None = typer.Option(None, "--root", help="Folder with data sets (default: SCAPEGOAT_DATA, ./data)."),
    as_json: bool = typer.Option(False, "--json", help="Print only the summary, as JSON."),
) -> None:
    """Run one federation from a spec and print what it leaked."""
    from scapegoat.experiments import parse
    from scapegoat.experiments import run as run_spec

    if out is not None:
        could_be_a_folder(out)
    parsed = parse(spec, set_)
    with round_progress(parsed.federation.rounds, quiet=as_json) as progress:
        result = run_spec(parsed, store=out, root=root, progress=progress)
    if as_json:
        print(json.dumps(result.summary, indent=2))
    else:
        _print(result, out)


def _print(result: Result, out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    summary = result.summary
    table = Table(box=None, show_header=False, pad_edge=False)
    for label, value in _lines(summary):
        table.add_row(label, value)
    console = Console(file=sys.stdout)
    console.print(f"{summary['attack']} against {summary['defense']} on {summary['data']}, {summary['rounds']} rounds")
    console.print(table)
    if out is not None:
        console.print(f"kept in {out / 'runs' / summary['spec_hash']}", soft_wrap=True, highlight=False)


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    membership, aggregation = summary["membership"], summary["aggregation"]

    def figure(name: str) -> str:
        low, high = membership[f"{name}_ci"]
        return f"{membership[name]:.3f}  [{low:.3f}, {high:.3f}]"

    return [
        ("test accuracy", f"{summary['test_accuracy']:.3f}  (training {summary['train_accuracy']:.3f})"),
        (
            "attack accuracy, best round",
            f"{figure('accuracy_best')}  round {membership['best_round']}, an oracle's choice",
        ),
        ("attack accuracy, final round", figure("accuracy_final")),
        ("AUC", figure("auc")),
        ("TPR at 1% FPR", figure("tpr_at_fpr_01")),
        (
            "hostile update kept",
            f"{aggregation['malicious_kept_rate']:.3f} of {aggregation['malicious_rounds']} rounds",
        ),
        ("scapegoat rate", f"{aggregation['scapegoat_rate']:.3f}"),
        ("seconds", f"{summary['seconds']:.1f}"),
    ]
