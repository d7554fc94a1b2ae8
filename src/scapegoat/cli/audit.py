"""`scapegoat audit`: the main job."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scapegoat.cli._components import component
from scapegoat.cli._folders import can_be_written
from scapegoat.cli._options import DEVICE, GPUS_PER_RUN, PLUGIN, on_device, refuse_at_once
from scapegoat.terminal import printable

if TYPE_CHECKING:
    from scapegoat.auditing import Audit
    from scapegoat.auditing.gate import Gate
    from scapegoat.experiments import Spec
    from scapegoat.experiments.executors import Event


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit", short_help="All attacks against the chosen defenses: verdict and report.")(audit)


def audit(
    model: str | None = typer.Option(None, "--model", help="mlp, resnet20, or your own package.module:factory."),
    data: str = typer.Option(
        "hospital", "--data", help="A data set, or your own file: a CSV, npz, Parquet or folder of pictures."
    ),
    task: str | None = typer.Option(
        None, "--task", help="classification, binary, multilabel or regression (default: found from the labels)."
    ),
    defense: list[str] = typer.Option(
        [], "--defense", help="A rule (repeat for several); default: four, the worst dropped early."
    ),
    attack: list[str] = typer.Option([], "--attack", help="An attack (repeat for several); default: five."),
    clients: int | None = typer.Option(None, "--clients", help="Clients in the federation (default: 10)."),
    malicious: int | None = typer.Option(None, "--malicious", help="Hostile ones among them (default: 1)."),
    rounds: int | None = typer.Option(None, "--rounds", help="Rounds of training (default: 150)."),
    seeds: int | None = typer.Option(
        None,
        "--seeds",
        help="Runs of each cell, with different seeds (default: 1; of the best rules 3 if no attack or rule is named).",
    ),
    references: int = typer.Option(0, "--references", help="Reference federations, for scores that compare with them."),
    rehearse: bool = typer.Option(
        False,
        "--rehearse",
        help="Train references for each cell, under its own attack and rule, instead of sharing them.",
    ),
    accuracy_cost: float | None = typer.Option(
        None, "--accuracy-cost", help="Test accuracy that the plan may cost (default: 0.03)."
    ),
    search: bool | None = typer.Option(
        None, "--plan/--no-plan", help="Whether to search for a plan (default: if no attack or rule is named)."
    ),
    set_: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Override any other key of the spec."),
    policy: Path | None = typer.Option(
        None, "--policy", help="Limits that the figures must keep (otherwise exit code 3)."
    ),
    junit: Path | None = typer.Option(None, "--junit", metavar="FILE", help="The policy's checks as JUnit XML."),
    sarif: Path | None = typer.Option(None, "--sarif", metavar="FILE", help="The policy's checks as SARIF 2.1.0."),
    device: str | None = DEVICE,
    gpus_per_run: float = GPUS_PER_RUN,
    plugin: list[str] = PLUGIN,
    out: Path = typer.Option(Path("audit"), "--out", help="Folder for the runs; finished ones are not computed twice."),
    report: Path = typer.Option(Path("report.html"), "--report", help="The report to write."),
    jobs: int | None = typer.Option(None, "--jobs", help="Runs at once (default: one per core)."),
    ray: str | None = typer.Option(
        None, "--ray", metavar="ADDRESS", help="Compute on a Ray cluster: auto, local or an address."
    ),
    root: Path | None = typer.Option(None, "--root", help="Folder with data sets (default: SCAPEGOAT_DATA, ./data)."),
    as_json: bool = typer.Option(False, "--json", help="Print verdict and summaries as JSON, nothing else."),
) -> None:
    """Attack a simulated federation under each defense; print a verdict and write a report."""
    refuse_at_once(set_, seeds, jobs)
    if accuracy_cost is not None and not 0 <= accuracy_cost <= 1:
        from scapegoat.errors import InputError

        raise InputError(f"--accuracy-cost {accuracy_cost:g}: is not a share of test accuracy (0 to 1)")
    can_be_written(out)
    files = _gate_files(policy, junit, sarif)

    from scapegoat import auditing
    from scapegoat.extending.plugins import load_plugins

    load_plugins(plugin)
    held = auditing.read_policy(policy) if policy is not None else None
    attacks = [component(a) for a in attack] or (None if held is None else held.needed_attacks)
    defenses = [component(d) for d in defense] or (None if held is None else held.needed_defenses)
    search = True if search is None and held is not None and held.about_the_plan else search
    left_to_us = attacks is None and defenses is None
    budget = auditing.budget_of(accuracy_cost, search, left_to_us)
    specs = auditing.audit_specs(
        model=model,
        data=data,
        task=None if task is None else component(task),
        attacks=attacks,
        defenses=defenses,
        clients=clients,
        malicious=malicious,
        rounds=rounds,
        seeds=auditing.planned_seeds(seeds, left_to_us),
        overrides=[*set_, *on_device(device)],
        plugins=plugin,
        out=out,
        root=root,
    )
    _writable("--report", report)
    grid = _Grid(specs)
    with _live_table(grid, quiet=as_json) as on_event:
        found = auditing.execute_cells(
            specs,
            out,
            root=root,
            references=references,
            rehearse=rehearse,
            eliminate=left_to_us,
            spread=seeds is None,
            accuracy_cost=budget,
            jobs=jobs,
            ray=ray,
            gpus_per_run=gpus_per_run,
            command=_command(),
            on_event=on_event,
            on_plan=grid.expect,
        )
    found.save(report)
    gate = found.check(held) if held is not None else None
    if gate is not None:
        for write, path in files:
            write(gate, path)
    if as_json:
        print(json.dumps(_as_json(found, report, gate), indent=2))
    else:
        _print(found, specs, report)
    if gate is not None and not gate.met:
        from scapegoat.errors import PolicyError

        raise PolicyError(check.text for check in gate.failures)
    if found.failures:
        from scapegoat.errors import RunError

        first = found.failures[0]
        count = len(found.results) + len(found.failures)
        raise RunError(f"{len(found.failures)} of {count} runs failed; {first.name[:12]}: {first.reason}")


def _writable(option: str, path: Path) -> None:
    from scapegoat.errors import InputError

    if os.path.isdir(path) or not os.path.isdir(path.absolute().parent):
        raise InputError(f"{option} {path}: is not a file in an existing folder")


def _gate_files(
    policy: Path | None, junit: Path | None, sarif: Path | None
) -> list[tuple[Callable[[Gate, Path], None], Path]]:
    """What to write once a policy was checked, by whom and where."""
    from scapegoat.errors import InputError

    if policy is None and (junit or sarif):
        raise InputError("--junit and --sarif report how a policy was met; name the policy with --policy FILE")
    from scapegoat.auditing import gate_files

    files: list[tuple[Callable[[Gate, Path], None], Path]] = []
    for option, write, path in (("--junit", gate_files.write_junit, junit), ("--sarif", gate_files.write_sarif, sarif)):
        if path is not None:
            _writable(option, path)
            files.append((write, path))
    return files


def _command() -> str:
    return shlex.join(["scapegoat", *sys.argv[1:]])


def _as_json(found: Audit, report: Path, gate: Gate | None) -> dict[str, Any]:
    policy = {} if gate is None else {"policy": {"met": gate.met, "checks": [asdict(c) for c in gate.checks]}}
    return {**found.as_dict(), "report": str(report), **policy}


_CELL = len("0.00 / 0.00 / 0.00")


class _Grid:
    """Attack by defense, filling in as runs finish: best-round accuracy over AUC."""

    def __init__(self, specs: list[Spec]) -> None:
        from scapegoat.report.pages import SHARED_OPTIONS, labels_of

        attacks = labels_of([s.attack.canonical() for s in specs], ignore=SHARED_OPTIONS)
        defenses = labels_of([s.defense.canonical() for s in specs])
        pairs = zip(attacks, defenses, strict=True)
        self.keys = {self._identity(spec): pair for spec, pair in zip(specs, pairs, strict=True)}
        self.attacks, self.defenses = list(dict.fromkeys(attacks)), list(dict.fromkeys(defenses))
        self.cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.under_way: dict[tuple[str, str], str] = {}
        self.total, self.done, self.certain = len(specs), 0, True

    def expect(self, count: int, certain: bool) -> None:
        """How many runs there will be, or about how many."""
        self.total, self.certain = count, certain

    @property
    def progress(self) -> str:
        """`23 of about 40`."""
        return f"{self.done} of {'' if self.certain else 'about '}{self.total}"

    def key(self, spec: Spec) -> tuple[str, str]:
        """The cell of a run."""
        return self.keys[self._identity(spec)]

    def said(self, spec: Spec) -> str:
        """A run and its cell's figures, on one line."""
        if spec.evaluation.reference:
            return f"reference federation {spec.evaluation.reference} (seed {spec.seed})"
        if self._identity(spec) not in self.keys:
            return f"for the plan: {_described(spec)}"
        attack, defense = self.key(spec)
        return f"{attack} against {defense}: {self.cell(attack, defense)}"

    @staticmethod
    def _identity(spec: Spec) -> str:
        plain = spec.canonical()
        return json.dumps([plain["attack"], plain["defense"], plain["federation"]])

    def take(self, event: Event) -> None:
        if event.spec.evaluation.reference or self._identity(event.spec) not in self.keys:
            self.done += event.kind in ("finished", "skipped", "failed")
            return
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

    def render(self, width: int) -> Any:
        """The table; where it is too wide, several below each other, so that no name is cut."""
        from rich.console import Group
        from rich.table import Table

        title = f"attack accuracy (best round) / AUC / test accuracy   {self.progress} runs"
        tables: list[Table] = []
        for defenses in self.blocks(width):
            table = Table(title=None if tables else title)
            table.add_column("attack", no_wrap=True)
            for defense in defenses:
                table.add_column(defense, justify="right", min_width=_CELL, overflow="fold")
            for attack in self.attacks:
                table.add_row(attack, *(self.cell(attack, defense) for defense in defenses))
            tables.append(table)
        return Group(*tables)

    def blocks(self, width: int) -> list[list[str]]:
        """The defenses in blocks that fit so many columns beside the attacks' names; at least one each."""
        left = width - 4 - max(map(len, self.attacks), default=0)
        blocks: list[list[str]] = [[]]
        room = left
        for defense in self.defenses:
            needed = max(len(defense), _CELL) + 3
            if blocks[-1] and needed > room:
                blocks.append([])
                room = left
            blocks[-1].append(defense)
            room -= needed
        return blocks

    def cell(self, attack: str, defense: str) -> str:
        summaries = self.cells.get((attack, defense))
        if not summaries:
            return self.under_way.get((attack, defense), "")
        count = len(summaries)
        accuracy = sum(s["membership"]["accuracy_best"] for s in summaries) / count
        auc = sum(s["membership"]["auc"] for s in summaries) / count
        test = sum(s["test_accuracy"] for s in summaries) / count
        return f"{accuracy:.2f} / {auc:.2f} / {test:.2f}"


def _described(spec: Spec) -> str:
    """A run of the search for a plan."""
    from scapegoat.experiments.spec import describe

    protections = [f"{p.name} {next(iter(_options(p)), '')}".strip() for p in spec.federation.protect]
    server = spec.federation.server
    steps = f"{server.optimizer} {server.lr:g}"
    where = ", ".join([describe(spec.defense), steps, *protections, f"{spec.federation.rounds} rounds"])
    return f"{spec.attack.name} against {where}"


def _options(component: Any) -> list[str]:
    return [f"{value:g}" for key, value in component.canonical().items() if isinstance(value, float) and value]


@contextlib.contextmanager
def _live_table(grid: _Grid, quiet: bool) -> Iterator[Callable[[Event], None] | None]:
    """A table that fills in on a terminal; a line per run elsewhere."""
    if quiet:
        yield None
        return
    if not sys.stdout.isatty():

        def line(event: Event) -> None:
            grid.take(event)
            if event.kind in ("finished", "failed"):
                print(f"{grid.progress}  {grid.said(event.spec)}", flush=True)

        yield line
        return
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(grid.render(console.width), console=console, refresh_per_second=4, transient=True) as live:

        def show(event: Event) -> None:
            grid.take(event)
            live.update(grid.render(console.width))

        yield show


def _print(found: Audit, specs: list[Spec], report: Path) -> None:
    from rich.console import Console

    from scapegoat.experiments.executors import Event

    grid = _Grid(specs)
    for result in found.results:
        grid.take(Event("skipped", result.summary["spec_hash"], result.spec, summary=result.summary))
    grid.expect(len(found.results) + len(found.failures), True)
    for failure in found.failures:
        grid.take(Event("failed", failure.name, failure.spec, reason=failure.reason))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(grid.render(console.width))
    console.print()
    console.print(printable(found.verdict.text), highlight=False, markup=False)
    for caveat in (*found.verdict.caveats, *found.notes):
        console.print(printable(f"Note: {caveat}"), highlight=False, markup=False)
    if found.plan is not None:
        console.print("\nThe plan", style="bold")
        console.print(printable(found.plan.text), highlight=False, markup=False)
        if found.plan.changes:
            for title, lines in found.plan.do.items():
                console.print(f"\n{title}:", highlight=False)
                console.print(printable(lines, lines=True), highlight=False, markup=False)
    console.print(f"\nThe whole story: {report}", highlight=False)
