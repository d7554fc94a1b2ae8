"""`scapegoat run`: one federation."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scapegoat.cli._folders import can_be_written
from scapegoat.cli._options import DEVICE, PLUGIN, on_device, with_plugins
from scapegoat.cli._progress import round_progress
from scapegoat.terminal import printable

if TYPE_CHECKING:
    from scapegoat.experiments.run import Result
    from scapegoat.federation import RoundRecord


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", short_help="One federation from a spec.")(run)


def run(
    spec: Path | None = typer.Argument(None, show_default=False),
    set_: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Override a key, e.g. federation.rounds=100."
    ),
    out: Path | None = typer.Option(None, "--out", help="Folder to keep the run in; it can be stopped and resumed."),
    root: Path | None = typer.Option(None, "--root", help="Folder with data sets (default: SCAPEGOAT_DATA, ./data)."),
    shards: int | None = typer.Option(
        None,
        "--shards",
        help="Processes to spread clients and updates over; the numbers stay the same.",
        show_default=False,
    ),
    ray: str | None = typer.Option(
        None, "--ray", metavar="ADDRESS", help="Ray cluster for the shards: local (default), auto or an address."
    ),
    device: str | None = DEVICE,
    plugin: list[str] = PLUGIN,
    as_json: bool = typer.Option(False, "--json", help="Print only the summary, as JSON."),
) -> None:
    """Run one federation and print what it leaked.

    SPEC is a YAML file; without one, the defaults are run.
    """
    from scapegoat.errors import InputError
    from scapegoat.yaml_text import read_override, read_yaml

    if ray is not None and shards is None:
        raise InputError("--ray: how many shards? --shards K spreads one federation over K processes of the cluster")
    if out is not None:
        can_be_written(out)
    # What is wrong with the text is said before the slow imports.
    plain = {} if spec is None else read_yaml(spec)
    for override in set_:
        read_override(override)

    from scapegoat.experiments import parse
    from scapegoat.experiments.run import run as run_spec

    parsed = parse(plain, [*set_, *on_device(device), *with_plugins(plain, plugin)])
    if parsed.device == "auto":
        from scapegoat import devices

        print(f"device: auto takes {devices.chosen('auto')}", file=sys.stderr)
    with round_progress(parsed.federation.rounds, quiet=as_json) as show, _stoppable(show, out) as progress:
        result = run_spec(parsed, store=out, root=root, progress=progress, shards=shards, ray=ray or "local")
    if as_json:
        print(json.dumps(result.summary, indent=2))
    else:
        _print(result, out)


@contextlib.contextmanager
def _stoppable(
    show: Callable[[RoundRecord, int], None] | None, out: Path | None
) -> Iterator[Callable[[RoundRecord, int], None] | None]:
    """A callback for `run` that shows the round and, where it can be saved, makes Ctrl-C wait for its end."""
    if out is None:
        yield show
        return
    from scapegoat.experiments.executors.serial import after_the_round

    with after_the_round() as check:

        def progress(record: RoundRecord, rounds: int) -> None:
            if show is not None:
                show(record, rounds)
            check()

        yield progress


def _print(result: Result, out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    summary = result.summary
    table = Table(box=None, show_header=False, pad_edge=False)
    for label, value in _lines(summary):
        table.add_row(label, value)
    console = Console(file=sys.stdout)
    title = f"{summary['attack']} against {summary['defense']} on {result.spec.data.title}, {summary['rounds']} rounds"
    console.print(printable(title), soft_wrap=True, highlight=False, markup=False)
    console.print(table)
    for note in _notes(summary):
        console.print(printable(f"Note: {note}"), soft_wrap=True, highlight=False, markup=False)
    if out is not None:
        console.print(f"kept in {out / 'runs' / summary['spec_hash']}", soft_wrap=True, highlight=False)


def _notes(summary: dict[str, Any]) -> list[str]:
    """What was done to the data, and whether the model is worth attacking."""
    from scapegoat.report.measures import no_better

    notes = list(summary.get("data_notes", []))
    accuracy, majority = summary["test_accuracy"], summary.get("test_majority")
    if majority is not None and accuracy is not None and no_better(accuracy, majority):
        metric = metric_of(summary)
        answer = "the most frequent class" if metric == "accuracy" else "the same"
        notes.append(
            f"the test {metric} of {accuracy:.3f} is no better than always answering {answer} ({majority:.3f}): it "
            "has learnt nothing yet (more rounds, or another federation.server.lr)"
        )
    return notes


def metric_of(summary: dict[str, Any]) -> str:
    """What the quality of the model is measured by; runs of older versions are of classifiers."""
    return str(summary.get("metric", "accuracy"))


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    membership, aggregation = summary["membership"], summary["aggregation"]

    def figure(name: str) -> str:
        low, high = membership[f"{name}_ci"]
        return f"{membership[name]:.3f}  [{low:.3f}, {high:.3f}]"

    others = membership["targets"] - membership["members"]
    return [
        (f"test {metric_of(summary)}", f"{summary['test_accuracy']:.3f}  (training {summary['train_accuracy']:.3f})"),
        (
            "attack accuracy, best round",
            f"{figure('accuracy_best')}  round {membership['best_round']}, an oracle's choice",
        ),
        ("attack accuracy, final round", figure("accuracy_final")),
        ("AUC", figure("auc")),
        *_worst(membership),
        ("TPR at 1% FPR", figure("tpr_at_fpr_01") if others >= 100 else f"not resolvable with {others} non-members"),
        *_epsilons(summary),
        (
            "hostile update kept",
            f"{aggregation['malicious_kept_rate']:.3f} of {aggregation['malicious_rounds']} rounds",
        ),
        ("scapegoat rate", f"{aggregation['scapegoat_rate']:.3f}"),
        ("seconds", f"{summary['seconds']:.1f}"),
        *([("device", str(summary["device"]))] if "device" in summary else []),
    ]


def _worst(membership: dict[str, Any]) -> list[tuple[str, str]]:
    """The score that tells most, where several were tried; runs of older versions have but one."""
    worst = membership.get("worst_score")
    if not worst or worst["tried"] < 2:
        return []
    low, high = worst["auc_ci"]
    return [(f"AUC, worst of {worst['tried']} scores", f"{worst['auc']:.3f}  [{low:.3f}, {high:.3f}]  {worst['name']}")]


def _epsilons(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """What the run shows of epsilon, and what it accounts for."""
    from scapegoat.report.facts import refutable

    membership, lines = summary["membership"], []
    parts = [("record", summary.get("privacy")), ("client", summary["aggregation"])]
    accounted = [(unit, float(part["epsilon"])) for unit, part in parts if part and part.get("epsilon") is not None]
    if membership.get("epsilon_lower") is not None:
        reachable = membership.get("epsilon_reachable")  # runs of older versions do not have it
        most = "" if reachable is None else f"  ({membership['targets']} targets can show {reachable:.2f})"
        lines.append(("epsilon, at least", f"{membership['epsilon_lower']:.2f}{most}"))
    bounds = membership.get("epsilon_bounds") or {}
    if accounted and "gaussian_noise" in bounds:
        by_auc = f"{bounds['gaussian_noise_by_auc']:.2f} if targets do not sway each other"
        lines.append(("  if noise is Gaussian", f"{bounds['gaussian_noise']:.2f}, {by_auc}"))
    claim, shown = refutable(summary), membership.get("epsilon_lower")
    bug = "  but more is shown: a bug in the noise or in its accounting"
    refuted = claim is not None and shown is not None and shown > claim
    lines += [
        (f"epsilon accounted, per {unit}", f"{value:.2f}{bug if refuted and value == claim else ''}")
        for unit, value in accounted
    ]
    return lines
