"""One run: from a spec to a folder in the store, resumable at any moment."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from scapegoat.errors import InputError, Stopped
from scapegoat.experiments import summary as summaries
from scapegoat.experiments.memory import refuse_what_does_not_fit
from scapegoat.experiments.spec import Spec, parse
from scapegoat.experiments.staging import Pins, staged
from scapegoat.experiments.store import RunStore
from scapegoat.federation import RoundRecord
from scapegoat.federation.simulation import Simulation
from scapegoat.membership.assessment import Scored, observed_scores

log = logging.getLogger("scapegoat.experiments")

CHECKPOINT_SECONDS = 15.0

Progress = Callable[[RoundRecord, int], None]


@dataclass(frozen=True)
class Result:
    """A finished run."""

    spec: Spec
    summary: dict[str, Any]
    rounds: pa.Table
    targets: pa.Table


def prepare(spec: Spec, root: str | Path | None = None) -> Simulation:
    """The federation of a spec, before its first round; refused if it will not fit into memory."""
    cast = staged(spec, root)
    refuse_what_does_not_fit(cast, spec.evaluation.server_view)
    return Simulation(cast, spec.evaluation.every, server_view=spec.evaluation.server_view)


def run(
    spec: Spec | Mapping[str, Any] | str | Path | None = None,
    *,
    store: RunStore | str | Path | None = None,
    root: str | Path | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Result:
    """Run one federation and return what happened.

    Parameters
    ----------
    spec: a mapping, a YAML file or a `Spec`; what it does not say is as `scapegoat run` has it.
    store: a folder, or a `RunStore`. A finished run is read back from it instead of computed again, and one that was
        stopped goes on where it was, with the same numbers as if it had never stopped.
    root: folder with data sets.
    progress: `progress(record, rounds)` is called after each round. A KeyboardInterrupt that it raises saves that
        round; one inside a round leaves the last checkpoint as it is.
    checkpoint_seconds: how much work a kill may cost.

    Returns
    -------
    The spec as it was run, the summary (what `scapegoat run --json` prints), and tables of rounds and targets.

    Examples
    --------
    >>> small = {"data": {"name": "hospital", "records": 700, "features": 40, "classes": 4, "validation": 40},
    ...          "model": {"name": "mlp", "hidden": [8]}, "federation": {"clients": 4, "rounds": 2, "batch_size": 16},
    ...          "attack": {"name": "passive", "targets": 40, "mask": 20}}
    >>> result = run(small)
    >>> result.summary["rounds"], result.rounds.num_rows, result.targets.num_rows
    (2, 2, 40)
    """
    parsed = Pins(root).pinned(parse(spec))
    runs = RunStore(store) if isinstance(store, str | Path) else store
    name = parsed.hash
    if runs is not None and runs.has(name):
        found = runs.inspect(name)
        if problem := found.problem or found.lacking:
            raise InputError(f"{runs.path(name)}: is damaged: {problem}; remove the folder to compute the run again")
        return Result(parsed, dict(found.summary), runs.rounds(name), runs.targets(name))
    threads = torch.get_num_threads()
    torch.set_num_threads(parsed.threads)
    try:
        return _compute(parsed, runs, root, progress, checkpoint_seconds)
    finally:
        torch.set_num_threads(threads)


def _compute(
    spec: Spec, store: RunStore | None, root: str | Path | None, progress: Progress | None, checkpoint_seconds: float
) -> Result:
    simulation, spent = _resumed(spec, store, root)
    started = last = time.perf_counter()
    saved = simulation.round

    def checkpoint() -> None:
        nonlocal saved
        if store is not None:
            seconds = torch.tensor(spent + time.perf_counter() - started, dtype=torch.float64)
            store.save_checkpoint(spec.hash, {"seconds": seconds, **simulation.state()})
            saved = simulation.round

    try:
        while not simulation.done:
            record = simulation.run_round()
            if progress is not None:
                progress(record, spec.federation.rounds)
            if time.perf_counter() - last >= checkpoint_seconds and not simulation.done:
                checkpoint()
                last = time.perf_counter()
    except KeyboardInterrupt:
        if simulation.whole:  # else the last checkpoint stands
            checkpoint()
        raise Stopped(_stopped(saved, spec.federation.rounds, kept=store is not None)) from None
    seconds = spent + time.perf_counter() - started
    scored = _scored(simulation)
    result = Result(
        spec,
        summaries.summarise(
            spec,
            simulation.cast,
            simulation.records,
            simulation.margins,
            scored,
            train_accuracy=simulation.train_accuracy(),
            seconds=seconds,
            privacy=simulation.cast.benign.privacy(simulation.picked),
        ),
        summaries.rounds_table(simulation.records),
        summaries.targets_table(simulation.cast.truth, simulation.margins, scored.scores),
    )
    if store is not None:
        store.write(spec.hash, spec.canonical(), result.rounds, result.targets, result.summary)
    return result


def _stopped(saved: int, rounds: int, *, kept: bool) -> str:
    if saved:
        return f"stopped; {saved} of {rounds} rounds are saved, the same command goes on where this one was"
    return "stopped before a round was saved" if kept else "stopped; nothing is kept of a run without --out DIR"


def _scored(simulation: Simulation) -> Scored:
    """The targets of a finished run under every score that needs nothing but the run."""
    cast = simulation.cast
    scores = observed_scores(simulation.margins)
    if simulation.server_view is not None:
        # A server asks of a client whether it holds a record; where non-members are nobody's, of all of them.
        scores |= simulation.server_view.scores(cast.owners)
    return Scored(member=cast.member, coins=cast.coins, scores=scores)


def _resumed(spec: Spec, store: RunStore | None, root: str | Path | None) -> tuple[Simulation, float]:
    """The run where it was stopped, and the seconds spent on it; from the start where nothing usable was saved."""
    simulation = prepare(spec, root)
    if store is None or (saved := store.load_checkpoint(spec.hash)) is None:
        return simulation, 0.0
    try:
        spent = float(saved.pop("seconds"))
        if not 0 <= spent < math.inf:
            raise ValueError(f"{spent} seconds spent")
        simulation.restore(saved)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        log.warning("%s: the checkpoint is of another version (%r); the run starts again", store.part(spec.hash), error)
        # The first one may be restored by half.
        return prepare(spec, root), 0.0
    return simulation, spent
