"""`scapegoat audit`: the main job."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scapegoat.cli._components import component
from scapegoat.cli._folders import could_be_a_folder

if TYPE_CHECKING:
    from scapegoat.auditing import Audit
    from scapegoat.experiments import Spec
    from scapegoat.experiments.executors import Event


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    model: str | None = typer.Option(None, "--model", help="mlp, resnet20, or your own package.module:factory."),
    data: str = typer.Option(
        "hospital", "--data", help="A data set, or your own: npz:PATH, parquet:PATH, images:PATH."
    ),
    defense: list[str] = typer.Option([], "--defense", help="A rule (repeat for several); default: seven of them."),
    attack: list[str] = typer.Option([], "--attack", help="An attack (repeat for several); default: all five."),
    clients: int | None = typer.Option(None, "--clients", help="Clients in the federation (10)."),
    malicious: int | None = typer.Option(None, "--malicious", help="Hostile ones among them (1)."),
    rounds: int | None = typer.Option(None, "--rounds", help="Rounds of training (150)."),
    seeds: int = typer.Option(1, "--seeds", help="Repeat every run with so many seeds."),
    set_: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Any other key of the spec."),
    out: Path = typer.Option(Path("audit"), "--out", help="Folder for the runs; finished ones are not computed twice."),
    report: Path = typer.Option(Path("report.html"), "--report", help="The report to write."),
    jobs: int | None = typer.Option(None, "--jobs", help="Runs at once (default: one a core)."),
    root: Path | None = typer.Option(None, "--root", help="Folder with data sets (default: SCAPEGOAT_DATA, ./data)."),
    as_json: bool = typer.Option(False, "--json", help="Print verdict and summaries as JSON, nothing else."),
) -> None:
    """Attack a simulated federation under each defense; print a verdict and write a report."""
    from scapegoat import auditing

    could_be_a_folder(out)
    specs = auditing.plan(
        model=model,
        data=data,
        attacks=[component(a) for a in attack] or auditing.ATTACKS,
        defenses=[component(d) for d in defense] or auditing.DEFENSES,
        clients=clients,
        malicious=malicious,
        rounds=rounds,
        seeds=seeds,
        overrides=set_,
        out=out,
    )
    _writable(report)
    with _live_table(specs, quiet=as_json) as on_event:
        found = auditing.execute_plan(specs, out, root=root, jobs=jobs, command=_command(), on_event=on_event)
    found.save(report)
    if as_json:
        print(json.dumps(_as_json(found, report), indent=2))
    else:
        _print(found, specs, report)
    if found.failures:
        from scapegoat.errors import RunError

        first = found.failures[0]
        raise RunError(f"{len(found.failures)} of {len(specs)} runs failed; {first.name[:12]}: {first.reason}")


def _writable(path: Path) -> None:
    from scapegoat.errors import InputError

    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(f"--report {path}: is not a file in an existing folder")


def _command() -> str:
    return shlex.join(["scapegoat", *sys.argv[1:]])


def _as_json(found: Audit, report: Path) -> dict[str, Any]:
    return {
        "verdict": found.verdict.text,
        "recommended": found.verdict.recommended,
        "caveats": list(found.verdict.caveats),
        "report": str(report),
        "runs": [result.summary for result in found.results],
        "failures": [{"spec_hash": f.name, "reason": f.reason} for f in found.failures],
    }


class _Grid:
    """Attack by defense, filling in as runs finish: best-round accuracy over AUC."""

    def __init__(self, specs: list[Spec]) -> None:
        from scapegoat.report.collect import SHARED_OPTIONS, labels_of

        attacks = labels_of([s.attack.canonical() for s in specs], ignore=SHARED_OPTIONS)
        defenses = labels_of([s.defense.canonical() for s in specs])
        pairs = zip(attacks, defenses, strict=True)
        self.keys = {self._identity(spec): pair for spec, pair in zip(specs, pairs, strict=True)}
        self.attacks, self.defenses = list(dict.fromkeys(attacks)), list(dict.fromkeys(defenses))
        self.cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.under_way: dict[tuple[str, str], str] = {}
        self.total, self.done = len(specs), 0

    def key(self, spec: Spec) -> tuple[str, str]:
        """The cell of a run."""
        return self.keys[self._identity(spec)]

    @staticmethod
    def _identity(spec: Spec) -> str:
        return json.dumps([spec.attack.canonical(), spec.defense.canonical()])

    def take(self, event: Event) -> None:
        key = self.key(event.spec)
        if event.kind in ("finished", "skipped") and event.summary is not None:
            self.cells.setdefault(key, []).append(event.summary)
            self.under_way.pop(key, None)
            self.done += 1
        elif event.kind == "failed":
            self.under_way[key] = "failed"
            self.done += 1
        elif event.kind in ("started", "round", "retried"):
            self.under_way[key] = f"{100 * event.round // max(event.spec.federation.rounds, 1)}%"

    def render(self) -> Any:
        from rich.table import Table

        table = Table(title=f"attack accuracy (best round) / AUC / test accuracy   {self.done} of {self.total} runs")
        table.add_column("attack")
        for defense in self.defenses:
            table.add_column(defense, justify="right")
        for attack in self.attacks:
            table.add_row(attack, *(self.cell(attack, defense) for defense in self.defenses))
        return table

    def cell(self, attack: str, defense: str) -> str:
        summaries = self.cells.get((attack, defense))
        if not summaries:
            return self.under_way.get((attack, defense), "")
        count = len(summaries)
        accuracy = sum(s["membership"]["accuracy_best"] for s in summaries) / count
        auc = sum(s["membership"]["auc"] for s in summaries) / count
        test = sum(s["test_accuracy"] for s in summaries) / count
        return f"{accuracy:.2f} / {auc:.2f} / {test:.2f}"


@contextlib.contextmanager
def _live_table(specs: list[Spec], quiet: bool) -> Iterator[Callable[[Event], None] | None]:
    """A table that fills in on a terminal; a line a run elsewhere."""
    if quiet:
        yield None
        return
    grid = _Grid(specs)
    if not sys.stdout.isatty():

        def line(event: Event) -> None:
            grid.take(event)
            if event.kind in ("finished", "failed"):
                attack, defense = grid.key(event.spec)
                print(f"{grid.done}/{grid.total}  {attack} against {defense}: {grid.cell(attack, defense)}", flush=True)

        yield line
        return
    from rich.console import Console
    from rich.live import Live

    with Live(grid.render(), console=Console(), refresh_per_second=4, transient=True) as live:

        def show(event: Event) -> None:
            grid.take(event)
            live.update(grid.render())

        yield show


def _print(found: Audit, specs: list[Spec], report: Path) -> None:
    from rich.console import Console

    from scapegoat.experiments.executors import Event

    grid = _Grid(specs)
    for result in found.results:
        grid.take(Event("skipped", result.summary["spec_hash"], result.spec, summary=result.summary))
    for failure in found.failures:
        grid.take(Event("failed", failure.name, failure.spec, reason=failure.reason))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(grid.render())
    console.print()
    console.print(found.verdict.text, highlight=False)
    for caveat in found.verdict.caveats:
        console.print(f"Note: {caveat}", highlight=False)
    console.print(f"\nThe whole story: {report}", highlight=False)
