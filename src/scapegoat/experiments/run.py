"""One run: from a spec to a folder in the store, resumable at any moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from scapegoat import data, models
from scapegoat.data.splits import split
from scapegoat.errors import InputError
from scapegoat.experiments import summary as summaries
from scapegoat.experiments.spec import Spec, parse
from scapegoat.experiments.store import RunStore
from scapegoat.federation import RoundRecord, Simulation
from scapegoat.federation.simulation import model_seed

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
    """Read the data, draw the splits, build the model: everything before the first round."""
    dataset = _read(spec, root)
    setting = spec.federation
    splits = split(
        dataset,
        spec.data,
        partition=setting.partition,
        benign=setting.benign,
        targets=spec.attack.targets,
        mask=spec.attack.mask,
        seed=spec.seed,
    )
    model = models.build(spec.model, dataset.input_shape, dataset.classes, model_seed(spec.seed), dataset.input_dtype)
    return Simulation(
        dataset=dataset,
        splits=splits,
        model=model,
        setting=setting,
        attack=spec.attack,
        rule=spec.defense,
        evaluate_every=spec.evaluation.every,
        seed=spec.seed,
    )


def pinned_model(spec: Spec, root: str | Path | None = None) -> models.ModelSpec:
    """The spec's model; a user's own with its content in it, so that a changed model is another run."""
    if not spec.model.unpinned:
        return spec.model
    dataset = _read(spec, root)
    return spec.model.pinned(models.Task(dataset.input_shape, dataset.classes, dataset.input_dtype))


def run(
    spec: Spec | Mapping[str, Any] | str | Path | None = None,
    *,
    store: RunStore | str | Path | None = None,
    root: str | Path | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Result:
    """Run one federation and return what happened.

    With a store, a finished run is read back instead of computed again, and one that was stopped goes on where it was,
    with the same numbers as if it had never stopped. `progress(record, rounds)` is called after each round.
    """
    parsed = parse(spec).pinned(data.roots(root))
    parsed = parsed.model_copy(update={"model": pinned_model(parsed, root)})
    runs = RunStore(store) if isinstance(store, str | Path) else store
    name = parsed.hash
    if runs is not None and runs.has(name):
        if (problem := runs.problem(name)) is not None:
            raise InputError(f"{runs.path(name)}: is damaged: {problem}; remove the folder to compute the run anew")
        return Result(parsed, runs.summary(name), runs.rounds(name), runs.targets(name))
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

    def checkpoint() -> None:
        if store is not None:
            seconds = torch.tensor(spent + time.perf_counter() - started, dtype=torch.float64)
            store.save_checkpoint(spec.hash, {"seconds": seconds, **simulation.state()})

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
        raise
    seconds = spent + time.perf_counter() - started
    result = Result(
        spec,
        summaries.summarise(spec, simulation, seconds),
        summaries.rounds_table(simulation.records),
        summaries.targets_table(simulation, simulation.margins),
    )
    if store is not None:
        store.write(spec.hash, spec.canonical(), result.rounds, result.targets, result.summary)
    return result


def _resumed(spec: Spec, store: RunStore | None, root: str | Path | None) -> tuple[Simulation, float]:
    """The run where it was stopped, and the seconds spent on it; from the start where nothing usable was saved."""
    simulation = prepare(spec, root)
    if store is None or (saved := store.load_checkpoint(spec.hash)) is None:
        return simulation, 0.0
    try:
        spent = float(saved.pop("seconds"))
        simulation.restore(saved)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        log.warning("%s: the checkpoint is of another version (%r); the run starts anew", store.part(spec.hash), error)
        # The first one may be restored by half.
        return prepare(spec, root), 0.0
    return simulation, spent


# A worker runs many specs on the same records: the last data set read stays in memory.
_last_read: tuple[str, Any] | None = None


def _read(spec: Spec, root: str | Path | None) -> Any:
    global _last_read
    key = f"{spec.data.canonical()} {data.roots(root)}"
    if _last_read is None or _last_read[0] != key:
        _last_read = (key, spec.data.read(data.roots(root)))
    return _last_read[1]
