"""Runs on a Ray cluster: one task per run, on whichever machine has a core to spare.

Ray carries whole runs, never the clients inside one. A worker or a machine that dies costs what was done since the last
checkpoint: the driver hands the run out again, by the same rules as for its own worker processes. Where the machines
do not see the driver's store, they compute in a folder of their own and send the finished run back.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scapegoat.errors import RunError, StorageError
from scapegoat.experiments.executors.job import compute
from scapegoat.experiments.executors.run_queue import RunQueue
from scapegoat.experiments.ray_cluster import connected, first_line, import_ray, settle_in, surroundings
from scapegoat.experiments.spec import Spec
from scapegoat.experiments.store import RunStore

POLL_SECONDS = 0.5
GRACE_SECONDS = 60.0
# Beyond what has a core already: keeps workers busy between two polls, and tells an autoscaler that there is more.
QUEUED = 16


class Board:
    """An actor that workers report to and the driver reads; it also carries the order to stop."""

    def __init__(self) -> None:
        self._news: list[tuple[str, int, float | None, float | None]] = []
        self._stopping = False

    def tell(self, name: str, done: int, attack: float | None, test: float | None) -> bool:
        """A run has `done` rounds done; the answer is whether to stop."""
        self._news.append((name, done, attack, test))
        return self._stopping

    def drain(self) -> list[tuple[str, int, float | None, float | None]]:
        """The news since the last call."""
        news, self._news = self._news, []
        return news

    def stop(self) -> None:
        """From now on, workers are told to stop."""
        self._stopping = True


def work_off(
    queue: RunQueue,
    store: RunStore,
    *,
    address: str,
    jobs: int,
    root: str | Path | None,
    checkpoint_seconds: float,
    gpus: float = 0.0,
) -> None:
    """Compute every run of the queue on the cluster; Ctrl-C lets the workers save what they are at."""
    ray = import_ray()
    if not queue.open:
        return
    around = surroundings(root)
    with connected(ray, address, jobs), _token(store) as token:
        common = {
            "store": str(store.directory.absolute()),
            "token": token,
            **around,
            "checkpoint_seconds": checkpoint_seconds,
        }
        _Driver(ray, queue, store, common, gpus).work_off()


class _Driver:
    def __init__(self, ray: Any, queue: RunQueue, store: RunStore, common: dict[str, Any], gpus: float) -> None:
        self._gpus = gpus
        self._ray, self._queue, self._store, self._common = ray, queue, store, common
        # The board is a convenience: if its process dies it comes back empty, and no run depends on it.
        self._board = ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()
        # Ray's own retries are off: the queue counts them, and gives up a run that gets no further.
        self._task = ray.remote(max_retries=0)(compute_remotely)
        self._refs: dict[Any, str] = {}

    def work_off(self) -> None:
        try:
            while self._queue.open:
                self._submit()
                self._collect(POLL_SECONDS)
        except KeyboardInterrupt:
            self._stop()
            raise
        except self._ray.exceptions.RayError as error:
            raise RunError(f"the Ray cluster is gone ({first_line(error)}); finished runs are kept") from None

    def _submit(self) -> None:
        room = int(self._ray.cluster_resources().get("CPU", 1)) + QUEUED - len(self._refs)
        while room > 0 and (name := self._queue.take(starts=False)) is not None:
            spec = self._queue.specs[name]
            task = self._common | {"name": name, "spec": spec.canonical()}
            self._refs[self._task.options(**resources(spec, self._gpus)).remote(task, self._board)] = name
            room -= 1

    def _collect(self, timeout: float) -> None:
        ready, _ = self._ray.wait(list(self._refs), num_returns=1, timeout=timeout)
        self._read_board()
        for ref in ready:
            self._settle(self._refs.pop(ref), ref)

    def _settle(self, name: str, ref: Any) -> None:
        exceptions = self._ray.exceptions
        try:
            reply = self._ray.get(ref)
        except exceptions.RayTaskError as error:
            self._queue.fail(name, first_line(error.cause if error.cause is not None else error))
            return
        except exceptions.RayError as error:
            self._queue.died(name, f"{type(error).__name__} on the Ray cluster")
            return
        if reply["kind"] == "stopped":
            self._queue.died(name, "its worker was told to stop")
            return
        if (run := reply.pop("run", None)) is not None:
            try:
                self._store.write(name, **run)
            except StorageError as error:
                reply = {"kind": "failed", "reason": str(error), "storage": True}
        self._queue.settle(name, reply)

    def _read_board(self) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            for name, done, attack, test in self._ray.get(self._board.drain.remote(), timeout=5):
                if done == 0:
                    self._queue.started(name)
                else:
                    self._queue.round(name, done, attack, test)

    def _stop(self) -> None:
        """Let every run end its round and save it; a queued task that gets its turn now is told to leave at once."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(self._board.stop.remote(), timeout=5)
            running = list(self._refs)
            deadline = time.monotonic() + GRACE_SECONDS
            while running and time.monotonic() < deadline:
                _, running = self._ray.wait(running, num_returns=1, timeout=POLL_SECONDS)


def resources(spec: Spec, gpus: float) -> dict[str, float]:
    """What Ray sets aside for a run: cores, and of a CUDA device a share, which then is the only one that it sees."""
    on_device = {"num_gpus": gpus} if spec.device.startswith("cuda") else {}
    return {"num_cpus": spec.threads, **on_device}


def compute_remotely(task: dict[str, Any], board: Any) -> dict[str, Any]:
    """What a worker of the cluster does with one run."""
    import ray

    name = task["name"]
    stopping = False

    def tell(done: int, attack: float | None, test: float | None) -> None:
        nonlocal stopping
        # The board may be gone or restarting; the run does not need it.
        with contextlib.suppress(ray.exceptions.RayError):
            stopping = ray.get(board.tell.remote(name, done, attack, test), timeout=5)

    def check() -> None:
        if stopping:
            raise KeyboardInterrupt

    tell(0, None, None)
    if stopping:
        return {"kind": "stopped"}
    settle_in(task)
    seen = (Path(task["store"]) / task["token"]).is_file()
    store = RunStore(task["store"] if seen else Path(tempfile.gettempdir()) / f"scapegoat{task['token']}")
    try:
        reply = compute(
            name,
            task["spec"],
            store,
            root=task["root"],
            checkpoint_seconds=task["checkpoint_seconds"],
            on_round=tell,
            check=check,
        )
    except KeyboardInterrupt:
        return {"kind": "stopped"}
    if not seen and reply["kind"] == "finished":
        reply["run"] = {
            "spec": store.spec(name),
            "rounds": store.rounds(name),
            "targets": store.targets(name),
            "summary": reply["summary"],
        }
        store.remove(name)
    return reply


@contextlib.contextmanager
def _token(store: RunStore) -> Iterator[str]:
    """The name of a file in the store: a machine that sees it sees the store."""
    token = f".seen-{uuid.uuid4().hex}"
    _leave(store.directory / token)
    try:
        yield token
    finally:
        (store.directory / token).unlink(missing_ok=True)


def _leave(path: Path) -> None:
    try:
        path.write_bytes(b"")
    except OSError as error:
        raise StorageError(f"{path.parent}: runs cannot be written there ({error.strerror or error})") from None
