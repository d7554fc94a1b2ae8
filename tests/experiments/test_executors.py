"""Executors: the same numbers whoever computes them, and nothing is lost when something dies."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from scapegoat import aggregation, attacks
from scapegoat.errors import InputError, StorageError
from scapegoat.experiments import RunStore, executors
from scapegoat.experiments.executors import Event, execute
from scapegoat.experiments.executors import run_queue as queue
from scapegoat.experiments.executors.events import Outcome
from scapegoat.experiments.executors.processes import ProcessPool
from scapegoat.experiments.executors.run_queue import DEATHS_WITHOUT_PROGRESS, RunQueue
from scapegoat.extending.plugins import load_plugins
from tests.experiments.tiny import assert_same_numbers, spec, specs


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    store = RunStore(tmp_path_factory.mktemp("undisturbed"))
    assert execute(specs(), store).complete
    return store


def test_worker_processes_give_the_same_numbers_as_this_process(undisturbed: RunStore, tmp_path: Path) -> None:
    events: list[Event] = []
    outcome = execute(specs(), tmp_path, jobs=2, on_event=events.append)
    assert outcome.complete
    assert_same_numbers(undisturbed, RunStore(tmp_path))
    for name in outcome.summaries:
        kinds = [e.kind for e in events if e.name == name]
        assert kinds[0] == "started"
        assert kinds[-1] == "finished"
        assert "round" in kinds


def test_a_finished_run_is_never_computed_twice(undisturbed: RunStore) -> None:
    before = {p: p.stat().st_mtime_ns for p in undisturbed.runs.rglob("*")}
    events: list[Event] = []
    outcome = execute([*specs(), *specs()], undisturbed, jobs=2, on_event=events.append)
    assert {e.kind for e in events} == {"skipped"}
    assert len(events) == len(specs())
    assert len(outcome.summaries) == len(specs())
    assert {p: p.stat().st_mtime_ns for p in undisturbed.runs.rglob("*")} == before


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path, jobs: int) -> None:
    hopeless = spec(targets=4000)
    outcome = execute([spec(), hopeless, spec("fedpoisonmia")], tmp_path, jobs=jobs)
    assert len(outcome.summaries) == 2
    (failure,) = outcome.failures.values()
    assert failure.spec.attack.targets == 4000
    assert "records" in failure.reason
    assert "\n" not in failure.reason
    left = json.loads((RunStore(tmp_path).part(failure.name) / "error.json").read_text())
    assert left["error"] == failure.reason


def test_an_unexpected_exception_is_a_failed_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by chance")

    monkeypatch.setattr(attacks.registry.cls("fedpoisonmia"), "craft", broken)
    outcome = execute(specs(), tmp_path)
    assert len(outcome.summaries) == len(outcome.failures) == 3
    assert {f.reason for f in outcome.failures.values()} == {"ZeroDivisionError: by chance"}


def test_a_killed_worker_is_replaced_and_its_run_goes_on(tmp_path: Path) -> None:
    wanted = [spec(rounds=60, seed=s) for s in range(2)]
    calm, stormy = RunStore(tmp_path / "calm"), RunStore(tmp_path / "stormy")
    assert execute(wanted, calm).complete
    killed: list[str] = []
    retried: list[Event] = []

    def kill_once_a_run(event: Event) -> None:
        if event.kind == "retried":
            retried.append(event)
        if event.kind == "round" and event.round > 1 and event.name not in killed:
            killed.append(event.name)
            progress = json.loads((stormy.part(event.name) / "progress.json").read_text())
            os.kill(progress["pid"], signal.SIGKILL)

    outcome = execute(wanted, stormy, jobs=2, on_event=kill_once_a_run, checkpoint_seconds=0.0)
    assert outcome.complete
    assert len(killed) == 2
    # A worker may have finished the run before the signal reached it.
    assert retried
    assert "SIGKILL" in retried[0].reason
    assert_same_numbers(calm, stormy)


def test_workers_stay_for_the_next_stage_and_the_dead_are_replaced(undisturbed: RunStore, tmp_path: Path) -> None:
    def workers() -> set[int]:
        return {child.pid for child in psutil.Process().children() if "worker" in " ".join(child.cmdline())}

    store, before = RunStore(tmp_path), workers()
    wanted = specs()
    with ProcessPool(store, jobs=2, root=None) as pool:
        assert execute(wanted[:2], store, jobs=2, pool=pool).complete
        first = workers() - before
        assert len(first) == 2
        assert execute(wanted[2:4], store, jobs=2, pool=pool).complete
        assert workers() - before == first
        killed = [psutil.Process(pid) for pid in first]
        for process in killed:
            process.kill()
        psutil.wait_procs(killed, timeout=30)
        events: list[Event] = []
        assert execute(wanted, store, jobs=2, pool=pool, on_event=events.append).complete
        assert not workers() & first
        # They died over nothing: no run counts as tried before.
        assert "retried" not in {event.kind for event in events}
    assert workers() == before
    assert_same_numbers(undisturbed, store)


def test_a_single_run_goes_to_workers_that_wait_and_no_run_starts_none(tmp_path: Path) -> None:
    """Beside them it would ask for memory that they hold."""
    store, events = RunStore(tmp_path), list[Event]()
    with ProcessPool(store, jobs=2, root=None) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors.serial, "compute", lambda *_, **__: pytest.fail("computed beside the workers"))
        assert execute([], store, jobs=2, pool=pool).complete
        assert not pool.running
        assert execute(specs()[:2], store, jobs=2, pool=pool).complete
        assert pool.running
        assert execute(specs()[:3], store, jobs=2, pool=pool, on_event=events.append).complete
        assert [event.kind for event in events].count("started") == 1
        assert execute(specs()[:3], store, jobs=2, pool=pool).complete
        assert pool.running


def test_workers_that_stayed_know_plugins_that_were_loaded_since(tmp_path: Path) -> None:
    (tmp_path / "late_plugin.py").write_text(
        "from scapegoat.aggregation.fedavg import FedAvg\n"
        "from scapegoat.combining.rule import register\n"
        "@register('late_mean')\n"
        "class LateMean(FedAvg):\n"
        "    pass\n"
    )
    store = RunStore(tmp_path / "out")
    with ProcessPool(store, jobs=2, root=None) as pool:
        assert execute(specs()[:2], store, jobs=2, pool=pool).complete
        sys.path.insert(0, str(tmp_path))
        try:
            load_plugins(["late_plugin"])
            late = [spec("passive", "late_mean", seed=s) for s in range(2)]
            assert execute(late, store, jobs=2, pool=pool).failures == {}
        finally:
            sys.path.remove(str(tmp_path))
            aggregation.registry._classes.pop("late_mean", None)


def test_a_run_that_kills_its_workers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "import os\n"
        "from scapegoat.attacks import Attack, register\n"
        "@register('deadly')\n"
        "class Deadly(Attack):\n"
        "    def craft(self, view):\n"
        "        os._exit(7)\n"
    )
    monkeypatch.setattr(queue, "DEATHS_WITHOUT_PROGRESS", 2)
    (tmp_path / "deadly_attack.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("deadly_attack")
    try:
        outcome = execute([spec("deadly"), spec(), spec("gradient_ascent")], tmp_path / "out", jobs=2)
    finally:
        attacks.registry._classes.pop("deadly")
        sys.modules.pop("deadly_attack")
    assert len(outcome.summaries) == 2
    (failure,) = outcome.failures.values()
    assert failure.spec.attack.name == "deadly"
    assert "died" in failure.reason
    assert "exit code 7" in failure.reason


def test_components_of_the_started_script_are_refused_where_workers_could_not_know_them(tmp_path: Path) -> None:
    cls = type("Mine", (attacks.Attack,), {"__module__": "__main__"})
    attacks.registry._classes["mine"] = cls
    try:
        with pytest.raises(InputError, match="'mine' is defined in the script"):
            execute(specs(), tmp_path, jobs=2)
    finally:
        attacks.registry._classes.pop("mine")


def test_at_least_one_worker_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        execute(specs(), tmp_path, jobs=0)


def test_a_disk_that_fills_up_stops_the_sweep_with_one_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pq.write_table
    written = 0

    def full(*args: object, **kwargs: object) -> None:
        nonlocal written
        written += 1
        if written > 4:  # two tables a run
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*args, **kwargs)

    monkeypatch.setattr(pq, "write_table", full)
    outcome = execute(specs(), tmp_path)
    assert len(outcome.summaries) == 2
    assert not outcome.failures
    assert len(outcome.left) == 4
    assert outcome.stopped == f"{tmp_path}: runs can no longer be written (No space left on device)"
    store = RunStore(tmp_path)
    assert len(store.finished()) == 2
    assert store.damaged() == []
    monkeypatch.undo()
    assert execute(specs(), tmp_path).complete


def test_a_store_that_cannot_be_written_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be written"):
        execute(specs(), tmp_path, on_event=lambda _: pytest.fail("nothing should start"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "summary.json").unlink(),
        lambda folder: (folder / "summary.json").write_text("{"),
        lambda folder: (folder / "summary.json").write_text('{"spec_hash": "of an older version"}'),
        lambda folder: (folder / "summary.json").write_text(json.dumps({"spec_hash": folder.name})),
        lambda folder: (folder / "spec.json").write_text("{}"),
        lambda folder: (folder / "rounds.parquet").write_bytes((folder / "rounds.parquet").read_bytes()[:-9]),
        lambda folder: [p.unlink() for p in folder.iterdir()],
    ],
)
def test_a_damaged_run_is_named_and_recomputed_on_request(tmp_path: Path, damage: object) -> None:
    wanted = [spec(rounds=1), spec("gradient_ascent", rounds=1)]
    assert execute(wanted, tmp_path).complete
    store = RunStore(tmp_path)
    whole, broken = store.finished()
    damage(store.path(broken))  # type: ignore[operator]
    outcome = execute(wanted, tmp_path)
    assert list(outcome.summaries) == [whole]
    assert str(store.path(broken)) in outcome.failures[broken].reason
    assert "--recompute-damaged" in outcome.failures[broken].reason
    assert execute(wanted, tmp_path, recompute_damaged=True).complete
    assert store.damaged() == []


@pytest.mark.parametrize("lacking", ["seconds", "plain", "history/0"])
def test_a_checkpoint_of_another_version_is_set_aside_and_the_run_starts_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lacking: str
) -> None:
    def stop(event: Event) -> None:
        if event.kind == "round":
            raise KeyboardInterrupt

    calm, store = RunStore(tmp_path / "calm"), RunStore(tmp_path / "old")
    assert execute([spec()], calm).complete
    (name,) = calm.finished()
    with pytest.raises(KeyboardInterrupt):
        execute([spec()], store, on_event=stop, checkpoint_seconds=0.0)
    saved = store.load_checkpoint(name)
    assert saved is not None
    store.save_checkpoint(name, {key: value for key, value in saved.items() if not key.startswith(lacking)})
    assert execute([spec()], store).complete
    (record,) = caplog.records
    assert "the checkpoint is of another version" in record.getMessage()
    assert_same_numbers(calm, store)


def test_workers_start_in_a_folder_with_files_named_like_pythons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "re.py").write_text("raise RuntimeError('not the real one')\n")
    (tmp_path / "net_of_mine.py").write_text(
        "from torch import nn\n\n\ndef make(input_shape, classes):\n    return nn.Linear(input_shape[0], classes)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    model = {"name": "import", "factory": "net_of_mine:make"}
    try:
        outcome = execute([spec(seed=seed) | {"model": model} for seed in range(2)], tmp_path / "out", jobs=2)
    finally:
        sys.modules.pop("net_of_mine", None)
    assert outcome.complete, outcome.failures


def test_what_killed_writers_left_is_swept_up(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    old, fresh = store.runs / f"{'0' * 64}.12345678.tmp", store.runs / f"{'1' * 64}.12345678.tmp"
    for folder in (old, fresh):
        folder.mkdir(parents=True)
    os.utime(old, (1, 1))
    assert execute([spec()], store).complete
    assert not old.exists()
    assert fresh.exists(), "another worker may be writing it right now"


class TestLedger:
    def book(self, names: str) -> RunQueue:
        every = executors.named([spec(seed=i) for i in range(len(names))])
        return RunQueue(every, Outcome(), None)

    def test_a_run_is_given_up_only_when_its_workers_die_without_getting_further(self) -> None:
        book = self.book("a")
        name = book.take()
        assert name is not None
        for death in range(3 * DEATHS_WITHOUT_PROGRESS):
            book.round(name, death + 1, None, None)
            book.died(name, "killed")
            assert book.take() == name
        for _ in range(DEATHS_WITHOUT_PROGRESS):
            book.round(name, 1, None, None)
            book.died(name, "killed")
            book.take()
        assert not book.open
        assert "killed" in book.outcome.failures[name].reason

    def test_after_a_storage_failure_nothing_more_is_handed_out(self) -> None:
        book = self.book("abc")
        name = book.take()
        assert name is not None
        book.settle(name, {"kind": "failed", "reason": "the disk is full", "storage": True})
        assert book.take() is None
        assert not book.open
        assert len(book.close().left) == 3
        assert not book.outcome.failures
