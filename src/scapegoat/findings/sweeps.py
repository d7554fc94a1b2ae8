"""A table or figure of the paper, or a grid of your own, from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from scapegoat import sweeps
from scapegoat.data.files.locate import find, missing
from scapegoat.data.files.locate import roots as data_roots
from scapegoat.data.files.published import PublishedData
from scapegoat.errors import InputError, RunError
from scapegoat.experiments import RunStore, Spec, executors
from scapegoat.experiments.executors import Event, Outcome
from scapegoat.experiments.notebooks import notebook_progress
from scapegoat.findings.folder import Findings, load
from scapegoat.sweeping import CostSweep, Grid, costs, lay_out, parse_only, write


def sweep(
    name: str | Path,
    out: str | Path,
    *,
    data: Sequence[str] = (),
    rounds: int | None = None,
    seeds: int = 1,
    only: Iterable[str] = (),
    overrides: Sequence[str] = (),
    root: str | Path | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Findings:
    """Run every cell of a sweep that is not there yet, and return what the folder holds then.

    Parameters
    ----------
    name: a sweep (`scapegoat list sweeps`) or a YAML file of lists.
    out: folder for the runs; finished ones are not computed twice.
    data: data sets instead of the paper's.
    rounds: rounds of training instead of the paper's.
    seeds: runs of each cell.
    only: `"defense=atm,median"` and the like: these cells alone.
    overrides: `"key=value"`, any other key of the spec, in every cell.
    root: folder with data sets.
    jobs: runs at once; by default one per core.
    ray: address of a Ray cluster, or `auto`.
    on_event: told of every start, round and end; without it a notebook shows a line of progress.

    Returns
    -------
    What the folder holds then: tables and figures of the sweep, and every run.

    Raises
    ------
    InputError for what cannot be run, before anything is computed; RunError where runs failed, after all others ran.

    Examples
    --------
    >>> import tempfile
    >>> tiny = ["data.records=700", "data.features=40", "data.classes=4", "data.validation=40", "model.hidden=[8]",
    ...         "attack.targets=40", "attack.mask=20"]
    >>> one = ["attack=passive", "defense=atm", "partition=iid"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = sweep("main-c08", folder, data=["hospital"], rounds=2, only=one, overrides=tiny, jobs=1)
    >>> found.page.sections[0].title
    'Five attacks against six defenses, 80% of the clients per round'
    """
    planned = lay_out(sweeps.find(str(name)), data=data, rounds=rounds, seeds=seeds, overrides=overrides, root=root)
    chosen = parse_only(planned.sweep, only, planned.axes)
    store = RunStore(out)
    if isinstance(planned.sweep, CostSweep):
        measure(planned, chosen, store)
    else:
        with notebook_progress() as line:
            if line is not None and on_event is None:
                line.expect(len(planned.runs(chosen)), True)
                on_event = line.take
            outcome = compute(planned, chosen, store, jobs=jobs, ray=ray, on_event=on_event)
        if not outcome.complete:
            reason = outcome.stopped or next(f.reason for f in outcome.failures.values())
            raise RunError(f"{planned.sweep.name}: {len(outcome.failures)} runs failed ({reason})")
    return load(out)


def compute(
    planned: Grid,
    chosen: Mapping[str, set[str]],
    store: RunStore,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    gpus_per_run: float = 1.0,
    on_event: Callable[[Event], None] | None = None,
    recompute_damaged: bool = False,
) -> Outcome:
    """Run the chosen cells of a plan, which is left in the store so that a report can draw it."""
    runs = planned.runs(chosen)
    require_data(planned, [spec for name, spec in runs.items() if not store.has(name)])
    write(planned, store.directory)
    return executors.execute(
        runs.values(),
        store,
        root=planned.root,
        jobs=executors.cores() if jobs is None else jobs,
        ray=ray,
        gpus_per_run=gpus_per_run,
        on_event=on_event,
        recompute_damaged=recompute_damaged,
    )


def measure(
    planned: Grid, chosen: Mapping[str, set[str]], store: RunStore, tell: Callable[[str], None] | None = None
) -> None:
    """Time the chosen cells of a sweep of costs; figures already in the store are kept beside the new ones."""
    require_data(planned, [cell.spec for cell in planned.chosen(chosen)])
    # What could not be written or merged afterwards is refused before hours of measuring.
    costs.load(store.directory, planned.sweep.name)
    write(planned, store.directory)
    table, figures = costs.measure(planned, chosen, tell)
    costs.save(table, store.directory, planned.sweep.name)
    write(planned, store.directory, figures)


class MissingDataError(InputError):
    """Data sets of a sweep are not there; `reasons` says of each what to do about it."""

    def __init__(self, message: str, reasons: Sequence[str]) -> None:
        super().__init__(message)
        self.reasons = tuple(reasons)


def require_data(planned: Grid, specs: Sequence[Spec]) -> None:
    """Refuse to start where a published data set is missing; a user's own file is found, or missed, before."""
    roots = data_roots(planned.root)
    lacking = {
        name: str(missing(name, chosen.publication, roots))
        for name, chosen in {spec.data.name: spec.data for spec in specs}.items()
        if isinstance(chosen, PublishedData) and find(name, chosen.publication, roots) is None
    }
    if lacking:
        there = sorted({spec.data.name for spec in specs} - lacking.keys())
        raise MissingDataError(
            f"{planned.sweep.name}: {', '.join(lacking)} not there, nothing was computed; --data selects others"
            + (f" (there: {', '.join(there)})" if there else " (hospital needs no files)"),
            list(lacking.values()),
        )
