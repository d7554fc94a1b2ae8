"""One run: from a spec to a folder in the store, resumable at any moment."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from scapegoat import devices
from scapegoat.devices import CPU
from scapegoat.errors import DeviceMemoryError, InputError, ScapegoatError, Stopped
from scapegoat.experiments import summary as summaries
from scapegoat.experiments.memory import refuse_what_does_not_fit
from scapegoat.experiments.notebooks import notebook_progress
from scapegoat.experiments.routes import measured
from scapegoat.experiments.spec import Spec, parse
from scapegoat.experiments.staging import Pins, staged
from scapegoat.experiments.store import RunStore
from scapegoat.federation import RoundRecord
from scapegoat.federation.simulation import Simulation
from scapegoat.heap import keep_pages
from scapegoat.kernels.routes import Routes
from scapegoat.membership.assessment import Scored, observed_scores

if TYPE_CHECKING:
    from scapegoat.experiments.shards.crew import Crew

log = logging.getLogger("scapegoat.experiments")

CHECKPOINT_SECONDS = 15.0

Progress = Callable[[RoundRecord, int], None]


@dataclass(frozen=True)
class Result:
    """A finished run.

    Examples
    --------
    >>> small = {"data": {"name": "hospital", "records": 700, "features": 40, "classes": 4, "validation": 40},
    ...          "model": {"name": "mlp", "hidden": [8]}, "federation": {"clients": 4, "rounds": 2, "batch_size": 16},
    ...          "attack": {"name": "passive", "targets": 40, "mask": 20}}
    >>> result = run(small)
    >>> result.spec.attack.name, result.summary["defense"], "attack_auc" in result.rounds.column_names
    ('passive', 'fedavg', True)
    """

    spec: Spec
    """The spec as it was run."""
    summary: dict[str, Any]
    """What `scapegoat run --json` prints."""
    rounds: pa.Table
    """One row per round."""
    targets: pa.Table
    """One row per target."""

    def __repr__(self) -> str:
        told, auc = self.summary, self.summary["membership"]["auc"]
        found = "no AUC" if auc is None else f"AUC {auc:.2f}"
        found += f", {told.get('metric', 'accuracy')} {told['test_accuracy']:.2f}"
        return f"Result({told['attack']} against {told['defense']} on {told['data']}, {told['rounds']} rounds: {found})"


def prepare(
    spec: Spec, root: str | Path | None = None, shards: Crew | None = None, routes: Routes | None = None
) -> Simulation:
    """The federation of a spec, before its first round; refused if it will not fit into memory.

    `routes` are those that it took before; without them the spec says how they are chosen.
    """
    cast = staged(spec, root)
    # Shards find room for their updates themselves.
    apart = {} if shards is None else {"elsewhere": True}
    refuse_what_does_not_fit(cast, spec.evaluation.server_view, **apart)
    if spec.routes == "measured" and cast.model.device == CPU:  # an accelerator has no routes to choose from
        cast.model.routes = measured(cast).routes if routes is None else routes
        refuse_what_does_not_fit(cast, spec.evaluation.server_view, **apart)
    updates = None
    if shards is not None:
        from scapegoat.experiments.shards.gathering import InShards

        updates = InShards(cast, shards)
    return Simulation(cast, spec.evaluation.every, server_view=spec.evaluation.server_view, updates=updates)


def run(
    spec: Spec | Mapping[str, Any] | str | Path | None = None,
    *,
    store: RunStore | str | Path | None = None,
    root: str | Path | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    shards: int | None = None,
    ray: str = "local",
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
    shards: processes that clients and updates are spread over, on a Ray cluster; None computes everything here. The
        numbers are the same.
    ray: the cluster: `local` starts one on this machine, `auto` or an address is one that runs already.

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
    keep_pages()
    try:
        with notebook_progress() as line, devices.repeatable(parsed.device), _crew(parsed, shards, ray, root) as crew:
            shown = line.show_round if line is not None and progress is None else progress
            return _compute(parsed, runs, root, shown, checkpoint_seconds, crew)
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, ScapegoatError) or not devices.short_of_memory(error):
            raise
        raise DeviceMemoryError(f"{parsed.device}: memory ran out ({_first_line(error)})") from error
    finally:
        torch.set_num_threads(threads)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _crew(
    spec: Spec, shards: int | None, ray: str, root: str | Path | None
) -> contextlib.AbstractContextManager[Crew | None]:
    if shards is None:
        return contextlib.nullcontext()
    for key, value, kept in (
        ("device", spec.device, "cpu"),
        ("federation.updates", spec.federation.updates, "float32"),
    ):
        if value != kept:
            raise InputError(f"{key}: {value} is not for a federation in shards (allowed: {kept})")
    from scapegoat.experiments.shards.crew import crew

    return crew(spec, address=ray, shards=shards, root=root)


def _compute(
    spec: Spec,
    store: RunStore | None,
    root: str | Path | None,
    progress: Progress | None,
    checkpoint_seconds: float,
    shards: Crew | None,
) -> Result:
    simulation, spent = _resumed(spec, store, root, shards)
    if spec.data.test is None:  # else it was chosen
        for remark in summaries.about_test(spec, simulation.cast):
            log.warning("%s", remark)
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
            train_majority=simulation.train_majority(),
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


def _routes_before(spec: Spec, store: RunStore | None) -> Routes | None:
    """The routes of a run that goes on, so that nothing is timed which its checkpoint knows; None if there is none."""
    if store is None or spec.routes != "measured" or (saved := store.load_checkpoint(spec.hash)) is None:
        return None
    try:
        return Simulation.routes_in(saved)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None  # of another version, as `_resumed` says


def _resumed(
    spec: Spec, store: RunStore | None, root: str | Path | None, shards: Crew | None
) -> tuple[Simulation, float]:
    """The run where it was stopped, and the seconds spent on it; from the start where nothing usable was saved."""
    simulation = prepare(spec, root, shards, _routes_before(spec, store))
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
        return prepare(spec, root, shards), 0.0
    return simulation, spent
