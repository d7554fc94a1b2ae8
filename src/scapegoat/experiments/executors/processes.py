"""Worker processes on this machine, one run each at a time.

Why not joblib or concurrent.futures: both break the whole pool when one worker is killed, and hand back nothing while
a run is under way. Here a worker is a plain child process that speaks JSON lines; the driver waits on all of them at
once, replaces one that dies, and gives its run, which goes on from its checkpoint, to the next. Decoded data sets are
memory-mapped files, so the workers share one copy of the records.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch

from scapegoat.errors import RunError
from scapegoat.experiments.executors.run_queue import RunQueue
from scapegoat.experiments.foreign import foreign_modules
from scapegoat.experiments.run import CHECKPOINT_SECONDS
from scapegoat.experiments.store import RunStore

GRACE_SECONDS = 60.0
FAILED_STARTS = 5
# One thread per worker, whatever library wants more; a run that asks for more threads gets them from torch itself.
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    complaints: IO[bytes]
    ready: bool = False
    task: str | None = None
    pending: bytes = field(default=b"")
    device: str = ""

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        # A worker that has died meanwhile is noticed when its output ends.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def last_words(self) -> str:
        """Why it is gone, in one line."""
        code = self.process.wait()
        if code < 0:
            try:
                reason = f"killed by {signal.Signals(-code).name}"
            except ValueError:
                reason = f"killed by signal {-code}"
            return reason + (", perhaps for want of memory" if code == -signal.SIGKILL else "")
        self.complaints.seek(0)
        lines = self.complaints.read().decode(errors="replace").strip().splitlines()
        return f"exit code {code}" + (f": {lines[-1]}" if lines else "")


def dealt_out(devices: set[str]) -> list[str]:
    """The accelerators of the runs, as CUDA calls them; nameless where specs say themselves which one, or it is not
    CUDA's."""
    wanted = devices - {"cpu"}
    if wanted != {"cuda"} or not torch.cuda.is_available():
        return [""] * len(wanted)
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [str(k) for k in range(torch.cuda.device_count())] if listed is None else listed.split(",")


def runs_at_once(devices: int, gpus: float) -> int:
    """Runs that so many accelerators have room for, each taking a share of one."""
    return max(1, int(devices * max(1, int(1 / gpus + 1e-9))))


class ProcessPool:
    """Workers for one queue after the other: they start with the first and stay, with what they have loaded."""

    def __init__(
        self, store: RunStore, *, jobs: int, root: str | Path | None, checkpoint_seconds: float = CHECKPOINT_SECONDS
    ) -> None:
        self._store, self._root, self._most, self._seconds = store, root, jobs, checkpoint_seconds
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._failed_starts = 0
        self._jobs = jobs
        self._devices: list[str] = []
        self._setup: dict[str, Any] = {}
        self._queue: RunQueue

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether there are workers already."""
        return bool(self._workers)

    def work_off(self, queue: RunQueue, *, gpus: float = 0.0) -> None:
        """Compute every run of the queue; on KeyboardInterrupt the workers save what they are at, then it goes on.

        `gpus` is each run's share of an accelerator; 0 where no run needs one.
        """
        if not queue.open:
            return
        self._queue = queue
        devices = dealt_out({spec.device for spec in queue.specs.values()})
        jobs = min(self._most, runs_at_once(len(devices), gpus)) if gpus else self._most
        setup = {
            "store": str(self._store.directory),
            "root": None if self._root is None else str(self._root),
            "checkpoint_seconds": self._seconds,
            "path": list(sys.path),
            "modules": foreign_modules(),
        }
        if (devices, jobs, setup) != (self._devices, self._jobs, self._setup):
            self._dismiss()  # what they were told when they started no longer holds
        self._devices, self._jobs, self._setup = devices, jobs, setup
        for worker in [w for w in self._workers if w.process.poll() is not None]:
            self._forget(worker)  # it died between two queues: no run is to blame
        try:
            while queue.open:
                self._fill()
                for key, _ in self._selector.select():
                    self._read(key.data)
        except BaseException:
            self._dismiss()
            raise

    def close(self) -> None:
        """Send the workers home."""
        self._dismiss()
        self._selector.close()

    def _fill(self) -> None:
        idle = [w for w in self._workers if w.task is None]
        # A worker that is starting counts as idle: it takes a run as soon as it is ready.
        for _ in range(min(self._jobs - len(self._workers), self._queue.waiting - len(idle))):
            self._start()
        for worker in idle:
            if worker.ready and (name := self._queue.take()) is not None:
                worker.task = name
                worker.send({"name": name, "spec": self._queue.specs[name].canonical()})

    def _start(self) -> None:
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed with the worker
        environment = os.environ | dict.fromkeys(ONE_THREAD, "1")
        taken = Counter(worker.device for worker in self._workers)
        device = min(self._devices, key=lambda name: taken[name], default="")
        if device:  # what a spec calls `cuda` is then the only one that the worker sees
            environment["CUDA_VISIBLE_DEVICES"] = device
        process = subprocess.Popen(
            # -P: a file `re.py` in the current folder is not Python's. The driver's search path comes with the setup.
            [sys.executable, "-P", "-m", "scapegoat.experiments.executors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the driver alone, which stops the workers between two rounds
        )
        worker = _Worker(process, complaints, device=device)
        self._workers.append(worker)
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        worker.send(self._setup)

    def _read(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        data = os.read(worker.process.stdout.fileno(), 1 << 16)
        if not data:
            self._bury(worker)
            return
        *lines, worker.pending = (worker.pending + data).split(b"\n")
        for line in lines:
            self._answer(worker, json.loads(line))

    def _answer(self, worker: _Worker, message: dict[str, Any]) -> None:
        if message["kind"] == "ready":
            worker.ready = True
            self._failed_starts = 0
            return
        assert worker.task is not None
        if message["kind"] == "round":
            self._queue.round(worker.task, message["round"], message["attack_accuracy"], message["test_accuracy"])
            return
        name, worker.task = worker.task, None
        self._queue.settle(name, message)

    def _bury(self, worker: _Worker) -> None:
        why = worker.last_words()
        self._forget(worker)
        if worker.task is not None:
            self._queue.died(worker.task, f"worker {why}")
        elif not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                raise RunError(f"worker processes do not start ({why})")

    def _forget(self, worker: _Worker) -> None:
        assert worker.process.stdin is not None
        assert worker.process.stdout is not None
        self._workers.remove(worker)
        self._selector.unregister(worker.process.stdout)
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.close()
        worker.process.stdout.close()
        worker.complaints.close()

    def _dismiss(self) -> None:
        """Let every worker end its round and save it; kill those that take too long, or all on a second Ctrl-C."""
        try:
            for worker in self._workers:
                assert worker.process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    worker.process.stdin.close()
            deadline = time.monotonic() + GRACE_SECONDS
            for worker in self._workers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for worker in list(self._workers):
                worker.process.kill()
                worker.process.wait()
                self._forget(worker)
