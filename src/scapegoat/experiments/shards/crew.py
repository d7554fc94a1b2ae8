"""The processes of one federation: who does what, and what happens if one of them dies."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from scapegoat.errors import InputError, RunError, ScapegoatError
from scapegoat.experiments.ray_cluster import connected, first_line, import_ray, surroundings
from scapegoat.experiments.shards.shard import Shard
from scapegoat.experiments.spec import Spec
from scapegoat.limits import refuse_many_jobs

log = logging.getLogger("scapegoat.experiments")

T = TypeVar("T")

MOST_DEATHS = 5
"""Deaths without a round done, after which a run is given up."""


class Crew:
    """So many shards, `local` ones on this machine. One that dies is replaced."""

    def __init__(self, ray: Any, spec: Spec, around: dict[str, Any], shards: int, local: bool) -> None:
        self.ray, self.local = ray, local
        self._task = (around, spec.canonical(), spec.hash)
        self._actor = ray.remote(num_cpus=spec.threads, max_restarts=0, scheduling_strategy="SPREAD")(Shard)
        self.shards = [self._start() for _ in range(shards)]
        self._refill: Callable[[], None] = lambda: None
        self._deaths = 0
        # Where a machine runs low on memory, Ray ends processes before the system does.
        self._died = (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError)
        self.ask(lambda: [shard.join.remote(*self._task) for shard in self.shards])

    def __len__(self) -> int:
        return len(self.shards)

    def begin_round(self, refill: Callable[[], None]) -> None:
        """Deaths are counted from here again; `refill` brings all shards to where they are from now on."""
        self._refill, self._deaths = refill, 0

    def ask(self, calls: Callable[[], list[Any]]) -> list[Any]:
        """The answers to calls; where a shard died they are made again, once all is as it was before."""
        return self.complete(lambda: self.get(calls()))

    def complete(self, work: Callable[[], T]) -> T:
        """What `work` returns, done again where a shard died in it."""
        while True:
            try:
                return work()
            except self._died as error:
                self._mend(error)

    def get(self, refs: list[Any]) -> list[Any]:
        """The answers; what went wrong in a shard is raised here as it was there."""
        try:
            answers: list[Any] = self.ray.get(refs)
        except self._died:
            raise  # also where a call waited for what a dead shard was to send
        except self.ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ScapegoatError | MemoryError):
                raise cause from None
            raise RunError(f"a shard of the federation failed ({first_line(cause or error)})") from error
        return answers

    def _mend(self, error: BaseException) -> None:
        """Replace the shards that died and bring all to where they were."""
        while True:
            self._deaths += 1
            if self._deaths > MOST_DEATHS:
                raise RunError(
                    f"shards of the federation died {self._deaths} times in one round ({first_line(error)[:200]}); "
                    "more shards need less memory each"
                )
            try:
                replaced = [place for place, shard in enumerate(self.shards) if not self._lives(shard)]
                for place in replaced:
                    self.shards[place] = self._start()
                self.get([self.shards[place].join.remote(*self._task) for place in replaced])
                log.warning(
                    "%d of %d shards died and were replaced; the round is computed again", len(replaced), len(self)
                )
                self._refill()
                return
            except self._died as again:
                error = again

    def dismiss(self) -> None:
        """End all processes."""
        for shard in self.shards:
            self.ray.kill(shard)

    def _start(self) -> Any:
        return self._actor.remote()

    def _lives(self, shard: Any) -> bool:
        try:
            self.ray.get(shard.pid.remote())
        except self._died:
            return False
        return True


@contextlib.contextmanager
def crew(spec: Spec, *, address: str, shards: int, root: str | Path | None) -> Iterator[Crew]:
    """The shards of a spec on a Ray cluster, as long as it takes; what cannot be spread is refused."""
    if shards < 1:
        raise InputError(f"--shards: {shards} is not allowed (1 or more)")
    refuse_many_jobs("--shards", shards)
    if spec.model.in_process:
        raise InputError(
            "--shards: the model was handed over as an object, which other processes cannot build; name it "
            "package.module:factory, or leave --shards out"
        )
    # Calls that waited for a shard that died are made again; Ray would print each of them.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    ray = import_ray()
    around = surroundings(root)
    with connected(ray, address, shards * spec.threads):
        cores = int(ray.cluster_resources().get("CPU", 0))
        if cores < shards * spec.threads:
            raise InputError(f"--shards: {shards} shards of {spec.threads} threads on a cluster of {cores} cores")
        try:
            made = Crew(ray, spec, around, shards, local=address == "local")
            try:
                yield made
            finally:
                made.dismiss()
        except ray.exceptions.RayError as error:
            raise RunError(f"the Ray cluster is gone ({first_line(error)}); the last checkpoint is kept") from None
