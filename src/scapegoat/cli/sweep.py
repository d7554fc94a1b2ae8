"""`scapegoat sweep`: a table or figure of the paper, or a grid of your own."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scapegoat.cli._folders import can_be_written, could_be_a_folder
from scapegoat.cli._options import DEVICE, GPUS_PER_RUN, PLUGIN, on_device, refuse_at_once, with_plugins
from scapegoat.terminal import printable

if TYPE_CHECKING:
    from scapegoat.experiments.executors import Event, Outcome
    from scapegoat.experiments.store import RunStore
    from scapegoat.sweeping import Grid


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sweep", short_help="A table or figure of the paper, or your own grid.")(sweep)


def sweep(
    name: str | None = typer.Argument(None),
    out: Path = typer.Option(Path("runs"), "--out", help="Folder for the runs; finished ones are not computed twice."),
    data: list[str] = typer.Option([], "--data", help="A data set (repeat for several); default: the paper's."),
    rounds: int | None = typer.Option(None, "--rounds", help="Rounds of training; default: the paper's 800."),
    seeds: int = typer.Option(1, "--seeds", help="Runs of each cell, with different seeds."),
    set_: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Override any other key of the spec, in every cell."
    ),
    only: list[str] = typer.Option(
        [], "--only", metavar="AXIS=VALUE", help="Only these cells, e.g. defense=atm,median."
    ),
    jobs: int | None = typer.Option(None, "--jobs", help="Runs at once (default: one per core)."),
    ray: str | None = typer.Option(None, "--ray", help="Compute on a Ray cluster: auto, local or an address."),
    status: bool = typer.Option(False, "--status", help="Show how far the sweep is; compute nothing."),
    recompute_damaged: bool = typer.Option(False, "--recompute-damaged", help="Compute damaged runs again."),
    root: Path | None = typer.Option(None, "--root", help="Folder with data sets (default: SCAPEGOAT_DATA, ./data)."),
    device: str | None = DEVICE,
    gpus_per_run: float = GPUS_PER_RUN,
    plugin: list[str] = PLUGIN,
) -> None:
    """Run every cell of a table or figure; it can be stopped and resumed.

    NAME is a sweep (`scapegoat list sweeps`), a YAML file, or package.module:SWEEP.
    """
    from scapegoat.errors import InputError

    _refuse_at_once(name, out, set_, seeds, jobs, computes=not status)

    from scapegoat import sweeping, sweeps
    from scapegoat.experiments.store import RunStore

    store = RunStore(out)
    if name is None:
        if not status:
            raise InputError("sweep: which one? Name it (`scapegoat list sweeps`), or ask for --status")
        _show_all(store)
        return
    found = sweeps.find(name)
    overrides = [*set_, *on_device(device), *with_plugins(found.base, plugin)]
    planned = sweeping.lay_out(
        found, data=data, rounds=rounds, seeds=seeds, overrides=overrides, root=root, source=name
    )
    chosen = sweeping.parse_only(planned.sweep, only, planned.axes)
    if status:
        if isinstance(planned.sweep, sweeping.CostSweep):
            _show_cost(sweeping.stored(planned, out), chosen)
        else:
            _show(planned.sweep.name, planned.sweep.title, sweeping.kinds(planned, chosen, out), store)
        return
    if isinstance(planned.sweep, sweeping.CostSweep):
        _measure(planned, chosen, store)
        return
    outcome = _compute(planned, chosen, store, jobs, ray, gpus_per_run, recompute_damaged)
    _print_table(out, planned)
    _complain(outcome)


def _refuse_at_once(
    name: str | None, out: Path, overrides: Sequence[str], seeds: int, jobs: int | None, *, computes: bool
) -> None:
    """Refuse, before the slow imports, what would fill the memory or could not be written."""
    from scapegoat.limits import refuse_many_cells
    from scapegoat.yaml_text import read_yaml

    refuse_at_once(overrides, seeds, jobs)
    if computes:
        can_be_written(out)
    else:
        could_be_a_folder(out)
    if name is not None and name.endswith((".yaml", ".yml")):
        grid = content.get("grid") if isinstance(content := read_yaml(Path(name)), dict) else None
        if isinstance(grid, dict):
            refuse_many_cells(f"{name}: grid", [len(values) for values in grid.values() if isinstance(values, list)])


def _compute(
    planned: Grid,
    chosen: Mapping[str, set[str]],
    store: RunStore,
    jobs: int | None,
    ray: str | None,
    gpus_per_run: float,
    recompute_damaged: bool,
) -> Outcome:
    from scapegoat.findings.sweeps import compute

    with _missing_data_named(), _progress(planned.runs(chosen), _labels(planned)) as on_event:
        return compute(
            planned,
            chosen,
            store,
            jobs=jobs,
            ray=ray,
            gpus_per_run=gpus_per_run,
            on_event=on_event,
            recompute_damaged=recompute_damaged,
        )


@contextlib.contextmanager
def _missing_data_named() -> Iterator[None]:
    """A line for each data set that is missing, before the one that ends the command."""
    from scapegoat.findings.sweeps import MissingDataError

    try:
        yield
    except MissingDataError as error:
        for reason in error.reasons:
            print(f"missing: {reason}", file=sys.stderr)
        raise


def _complain(outcome: Outcome) -> None:
    """Name every failed run; exit code 1 if there are any."""
    from scapegoat.errors import RunError

    if outcome.complete:
        return
    for failure in outcome.failures.values():
        line = f"failed: {_about(failure.spec)} ({failure.name[:12]}): {failure.reason}"
        print(printable(line), file=sys.stderr)
    count = len(outcome.failures)
    total = count + len(outcome.summaries) + len(outcome.left)
    if outcome.stopped:
        done = f"{len(outcome.summaries)} of {total} runs are finished and whole"
        raise RunError(f"{outcome.stopped}; {done}, the same command goes on once that is fixed")
    raise RunError(f"{count} of {total} runs failed")


def _about(spec: Any) -> str:
    from scapegoat.experiments.spec import describe

    return f"{spec.attack.name} against {describe(spec.defense)} on {spec.data.title}, seed {spec.seed}"


def _labels(planned: Grid) -> dict[str, str]:
    """What to call a run: its place in the sweep, and the seed."""
    from scapegoat.experiments.executors import named

    labels: dict[str, str] = {}
    for cell in planned.cells:
        place = " ".join(value for value in cell.at.values() if value)
        for seed, run in enumerate(named(cell.seeds(planned.seeds), planned.root)):
            labels.setdefault(run, f"{place} seed {seed}" if planned.seeds > 1 else place)
    return labels


def _measure(planned: Grid, chosen: Mapping[str, set[str]], store: RunStore) -> None:
    from scapegoat.findings.sweeps import measure

    quiet = not sys.stderr.isatty()
    with _missing_data_named():
        measure(planned, chosen, store, None if quiet else lambda what: print(f"timing {what}", file=sys.stderr))
    _print_table(store.directory, planned)


@contextlib.contextmanager
def _progress(runs: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[Callable[[Event], None]]:
    """On a terminal a bar for the sweep and a line for each run under way; elsewhere a line per run."""
    done = 0

    def line(event: Event) -> str:
        label = labels.get(event.name, event.name[:12])
        if event.summary is None:
            return printable(f"{label}: {event.kind}{': ' if event.reason else ''}{event.reason}")
        attack, test = event.summary["membership"]["accuracy_best"], event.summary["test_accuracy"]
        return f"{label}: attack {attack:.3f}, test {test:.3f}"

    if not sys.stderr.isatty():

        def tell(event: Event) -> None:
            nonlocal done
            done += event.kind in ("finished", "failed", "skipped")
            if event.kind in ("finished", "failed", "retried"):
                print(f"{done}/{len(runs)}  {line(event)}", file=sys.stderr, flush=True)

        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=3600) as bar:
        overall = bar.add_task("runs", total=len(runs))
        tasks: dict[str, Any] = {}

        def show(event: Event) -> None:
            if event.kind == "started" and event.name not in tasks:
                label = labels.get(event.name, event.name[:12])
                tasks[event.name] = bar.add_task(label, total=event.spec.federation.rounds)
            elif event.kind == "round" and event.name in tasks:
                bar.update(tasks[event.name], completed=event.round)
            elif event.kind == "retried":
                bar.console.print(line(event), highlight=False, markup=False)
            elif event.kind in ("finished", "failed", "skipped"):
                if event.name in tasks:
                    bar.remove_task(tasks.pop(event.name))
                if event.kind != "skipped":
                    bar.console.print(line(event), highlight=False, markup=False)
                bar.advance(overall)

        yield show


def _print_table(out: Path, planned: Grid) -> None:
    from rich.console import Console

    from scapegoat.experiments.store import RunStore
    from scapegoat.report.sweeps import in_store, section
    from scapegoat.sweeping import stored

    drawn = section(stored(planned, out), in_store(RunStore(out)))
    console = Console(width=None if sys.stdout.isatty() else 200)
    for table in drawn.tables[:1]:
        for part in _text_tables(table, console.width):
            console.print(part)
        if any(cell.paper is not None for row in table.cells for cell in row):
            console.print(f"paper's number in parentheses; *: {table.mark}", highlight=False)
    for figure in drawn.figures[:1]:
        for panel in figure.panels:
            console.print(_text_panel(figure, panel))
    console.print(f"scapegoat report {shlex.quote(str(out))} draws all of it", highlight=False)


def _text_tables(table: Any, width: int) -> Iterator[Any]:
    """The table, in as many parts as the width of the terminal makes it."""
    from rich.table import Table

    headings = 3 * len(table.row_titles) + sum(max(map(len, level)) for level in zip(*table.rows, strict=True))
    widest = max(len(label) for column in table.columns for label in column)
    fitting = max(1, (width - headings - 2) // (max(widest, 8) + 3))
    for start in range(0, len(table.columns), fitting):
        drawn = Table(title=_plain(table.title) if start == 0 else None, title_justify="left")
        for heading in table.row_titles:
            drawn.add_column(_plain(heading))
        for column in table.columns[start : start + fitting]:
            drawn.add_column(_plain("\n".join(column)), justify="right", overflow="fold")
        for labels, row in zip(table.rows, table.cells, strict=True):
            drawn.add_row(
                *map(_plain, labels), *(_text_cell(cell, table.digits) for cell in row[start : start + fitting])
            )
        yield drawn


def _plain(text: str) -> Any:
    """Text of a plan's file as it is: nothing in it is markup, and nothing moves the cursor."""
    from rich.text import Text

    return Text(printable(text, lines=True))


def _text_cell(cell: Any, digits: int) -> str:
    ours = f"{cell.ours.value:.{digits}f}" if cell.ours is not None else "-"
    paper = f" ({cell.paper:.3f}{'*' if cell.differs else ''})" if cell.paper is not None else ""
    return ours + paper


def _text_panel(figure: Any, panel: Any) -> Any:
    from rich.table import Table

    drawn = Table(title=_plain(f"{figure.title}, {panel.title}"), title_justify="left")
    drawn.add_column(_plain(figure.x_label))
    for x in panel.lines[0].x:
        drawn.add_column(f"{x:g}", justify="right")
    for line in panel.lines:
        drawn.add_row(_plain(line.label), *("-" if y is None else f"{y.value:.3f}" for y in line.y))
    return drawn


def _show_all(store: RunStore) -> None:
    from scapegoat.errors import InputError
    from scapegoat.sweeping import saved
    from scapegoat.sweeping.status import of_plan

    def left_out(plan: str, problem: str) -> None:
        print(printable(f"left out: {problem}"), file=sys.stderr)

    contents = saved(store.directory, left_out)
    if not contents:
        raise InputError(f"--out {store.directory}: no sweep was started there")
    for content in contents:
        if content["kind"] == "cost":
            _show_cost(content)
        else:
            _show(content["sweep"], content["title"], of_plan(content), store)


def _show_cost(content: Mapping[str, Any], chosen: Mapping[str, set[str]] | None = None) -> None:
    from scapegoat.sweeping.status import measured

    done, total = measured(content, chosen)
    print(printable(f"{content['sweep']}: {content['title']}"))
    print(f"  measured {done}  left {total - done}  of {total}")


def _show(name: str, title: str, kinds: Mapping[str, str], store: RunStore) -> None:
    from scapegoat.run_folders import unsealed_words
    from scapegoat.sweeping.status import status

    found = status(store, kinds)
    left = found.seconds_left
    estimate = "time to go unknown until a run is finished" if left is None else f"about {_duration(left)} to go"
    print(printable(f"{name}: {title}"))
    print(
        f"  done {len(found.done)}  running {len(found.running)}  failed {len(found.failed)}  "
        f"damaged {len(found.damaged)}  left {len(found.left)}  of {found.total}; {estimate}"
    )
    if found.unsealed:
        print(f"  {unsealed_words(found.unsealed)}")
    for run, (done, rounds) in found.running.items():
        print(f"  running  {run[:12]}  round {done} of {rounds}")
    for word, reasons in (("failed", found.failed), ("damaged", found.damaged)):
        for run, reason in reasons.items():
            print(printable(f"  {word:<8} {run[:12]}  {reason}"))


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
