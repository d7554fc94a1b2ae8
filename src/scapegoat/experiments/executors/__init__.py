"""Runs, computed: in this process, in worker processes, or on a Ray cluster. The numbers are the same.

    outcome = execute(specs, RunStore("out"), jobs=2, on_event=print)

A finished run is never computed twice, whoever asks for it; one that was stopped goes on where it was.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scapegoat import devices
from scapegoat.errors import InputError, Stopped, StorageError
from scapegoat.experiments.executors import serial
from scapegoat.experiments.executors.events import Event, Failure, OnEvent, Outcome
from scapegoat.experiments.executors.run_queue import RunQueue
from scapegoat.experiments.run import CHECKPOINT_SECONDS
from scapegoat.experiments.spec import Spec, parse
from scapegoat.experiments.staging import Pins
from scapegoat.experiments.store import RunStore
from scapegoat.limits import refuse_many_jobs

if TYPE_CHECKING:
    from scapegoat.experiments.executors.processes import ProcessPool

__all__ = ["Event", "Failure", "Outcome", "cores", "execute", "named"]

ABANDONED_SECONDS = 600.0


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def named(specs: Iterable[Spec | Mapping[str, Any]], root: str | Path | None = None) -> dict[str, Spec]:
    """The specs by the name (hash) of their run, each once, in the order given."""
    pins = Pins(root)
    pinned: dict[str, Spec] = {}
    for value in specs:
        spec = pins.pinned(parse(value))
        pinned.setdefault(spec.hash, spec)
    return pinned


def execute(
    specs: Iterable[Spec | Mapping[str, Any]],
    store: RunStore | str | Path,
    *,
    root: str | Path | None = None,
    jobs: int = 1,
    ray: str | None = None,
    gpus_per_run: float = 1.0,
    on_event: OnEvent | None = None,
    recompute_damaged: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    pool: ProcessPool | None = None,
) -> Outcome:
    """Compute the runs that are not there yet; one that fails is reported, the others go on.

    `jobs` above 1 starts so many worker processes, one torch thread each. `ray` (`auto`, `local` or an address) means a
    Ray cluster instead; `local` starts one of `jobs` workers here. Of runs on an accelerator as many are computed at
    once as their share of it, `gpus_per_run`, allows; one that runs out of memory is tried again alone. A run folder
    that is damaged counts as failed unless `recompute_damaged`. `pool` has workers of the same store that stay for the
    next call. Ctrl-C saves what is under way and raises Stopped, a KeyboardInterrupt.
    """
    runs = RunStore(store) if isinstance(store, str | Path) else store
    refuse_many_jobs("jobs", jobs)
    every = named(specs, root)
    outcome = Outcome()
    _prepare(runs)
    wanted = _not_there_yet(every, runs, outcome, on_event, recompute_damaged)
    share = _share(wanted.values(), gpus_per_run, here=ray is None)
    queue = RunQueue(wanted, outcome, on_event)
    try:
        _work_off(queue, runs, ray, share, pool, jobs=jobs, root=root, checkpoint_seconds=checkpoint_seconds)
    except KeyboardInterrupt:
        done = sum(runs.has(name) for name in every)
        raise Stopped(
            f"stopped with {done} of {len(every)} runs finished; the same command goes on where this one was"
        ) from None
    for name in outcome.summaries:
        # A worker that outlived its driver may have saved a checkpoint after the run was finished by another.
        shutil.rmtree(runs.part(name), ignore_errors=True)
    return queue.close()


def _work_off(
    queue: RunQueue,
    runs: RunStore,
    ray: str | None,
    share: float,
    pool: ProcessPool | None,
    *,
    jobs: int,
    root: str | Path | None,
    checkpoint_seconds: float,
) -> None:
    # A single run needs no other process; but one beside workers that wait would need memory beside theirs.
    workers_wait = pool is not None and pool.running
    if ray is not None:
        from scapegoat.experiments.executors import cluster

        cluster.work_off(
            queue, runs, address=ray, jobs=jobs, gpus=share, root=root, checkpoint_seconds=checkpoint_seconds
        )
    elif jobs == 1 or (queue.waiting < 2 and not workers_wait):
        serial.work_off(queue, runs, root=root, checkpoint_seconds=checkpoint_seconds)
    elif pool is not None:
        pool.work_off(queue, gpus=share)
    else:
        from scapegoat.experiments.executors.processes import ProcessPool

        with ProcessPool(runs, jobs=jobs, root=root, checkpoint_seconds=checkpoint_seconds) as own:
            own.work_off(queue, gpus=share)


def _share(specs: Iterable[Spec], gpus_per_run: float, *, here: bool) -> float:
    """The share of an accelerator that a run has; 0 where none is asked for. Refuses one that is not there."""
    if not 0 < gpus_per_run <= 64:
        raise InputError(f"gpus per run: {gpus_per_run:g} is not allowed (above 0, such as 0.25, or a whole number)")
    wanted = sorted({spec.device for spec in specs} - {"cpu"})
    if here:
        for name in wanted:
            devices.find(name)
    return gpus_per_run if wanted else 0.0


def _prepare(store: RunStore) -> None:
    """Make sure that the store can be written, and remove what killed writers left half-done."""
    probe = store.runs / f"probe.{uuid.uuid4().hex[:8]}.tmp"
    try:
        store.runs.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise StorageError(f"{store.directory}: runs cannot be written there ({error.strerror or error})") from None
    for temporary in store.runs.glob("*.tmp"):
        if temporary.is_dir() and time.time() - temporary.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(temporary, ignore_errors=True)


def _not_there_yet(
    every: Mapping[str, Spec], store: RunStore, outcome: Outcome, on_event: OnEvent | None, recompute_damaged: bool
) -> dict[str, Spec]:
    wanted: dict[str, Spec] = {}
    for name, spec in every.items():
        event = None
        found = store.inspect(name) if store.path(name).exists() else None
        problem = "" if found is None else found.problem or found.lacking
        if found is None:
            wanted[name] = spec
        elif not problem:
            outcome.summaries[name] = dict(found.summary)
            if not found.sealed:
                outcome.unsealed.add(name)
            event = Event("skipped", name, spec, round=spec.federation.rounds, summary=outcome.summaries[name])
        elif recompute_damaged:
            store.remove(name)
            wanted[name] = spec
        else:
            reason = f"{store.path(name)} is damaged: {problem} (--recompute-damaged computes it again)"
            outcome.failures[name] = Failure(name, spec, reason)
            event = Event("failed", name, spec, reason=reason)
        if event is not None and on_event is not None:
            on_event(event)
    return wanted
