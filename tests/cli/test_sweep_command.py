"""`scapegoat sweep` as a person uses it: started, watched, interrupted, killed, started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from results.__main__ import main as results
from scapegoat import sweeping
from scapegoat.cli import main
from scapegoat.experiments import RunStore
from scapegoat.sweeps import get
from tests.experiments.tiny import SETTINGS, assert_same_numbers

TINY = [part for setting in SETTINGS for part in ("--set", setting)]
SWEEP = ["sweep", "mask-selection", "--data", "hospital", "--only", "defense=atm", *TINY]


def scapegoat(*arguments: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    raise stop.value


def code(*arguments: str) -> int:
    try:
        scapegoat(*arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    raise AssertionError("unreachable")


def test_a_sweep_from_start_to_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert code(*SWEEP, "--out", out, "--rounds", "2", "--jobs", "1") == 0
    shown = capsys.readouterr()
    assert "Greedy" in shown.out
    assert "(0.880" in shown.out, "the paper's number stands beside ours"
    assert "4/4" in shown.err
    assert code(*SWEEP, "--out", out, "--rounds", "2", "--jobs", "1") == 0
    assert "4/4" not in capsys.readouterr().err, "finished runs are not computed again"
    assert code("sweep", "--out", out, "--status") == 0
    assert "done 4  running 0  failed 0  damaged 0  left 20  of 24" in capsys.readouterr().out
    assert code(*SWEEP, "--out", out, "--rounds", "2", "--status") == 0
    assert "done 4  running 0  failed 0  damaged 0  left 0  of 4; about 0 s to go" in capsys.readouterr().out


def test_without_a_folder_the_runs_are_kept_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert code(*SWEEP, "--rounds", "1", "--jobs", "1") == 0
    assert RunStore(tmp_path / "runs").finished()


def test_a_damaged_run_is_named_with_exit_code_1_and_recomputed_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*SWEEP, "--out", str(tmp_path), "--rounds", "1", "--jobs", "1"]
    assert code(*command) == 0
    broken = RunStore(tmp_path).finished()[0]
    (RunStore(tmp_path).path(broken) / "rounds.parquet").write_bytes(b"half")
    capsys.readouterr()
    assert code(*command) == 1
    said = capsys.readouterr().err
    assert broken in said
    assert "--recompute-damaged" in said
    assert "1 of 4 runs failed" in said
    assert code(*command, "--recompute-damaged") == 0
    assert RunStore(tmp_path).damaged() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["main-c99"], "there is none of that name"),
        ([], "which one?"),
        (["--status"], "no sweep was started there"),
        (["nowhere.yaml"], "cannot be read"),
        (["main-c08", "--seeds", "0"], "at least 1"),
        (["main-c08", "--set", "federation.round=2"], "did you mean 'rounds'"),
        (["main-c08", "--data", "texas1000"], "did you mean 'texas100'"),
        (["main-c08", "--jobs", "0"], "--jobs: 0 is not allowed, at least 1"),
        (["main-c08", "--jobs", "-3"], "--jobs: -3 is not allowed, at least 1"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code("sweep", *arguments, "--out", str(tmp_path)) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize("below", ["", "runs", "deeper/still"])
def test_a_file_is_no_folder_for_runs(below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for arguments in ([*SWEEP], ["sweep", "--status"]):
        assert code(*arguments, "--out", str(file / below)) == 2
        assert f"{file} is a file; a folder is expected" in capsys.readouterr().err
    assert file.read_text() == "mine"


@pytest.mark.parametrize("sweep", ["main-c08", "attack-cost"])
def test_data_sets_that_are_not_there_are_named_once_before_anything_is_computed(
    sweep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCAPEGOAT_DATA", raising=False)
    arguments = ["sweep", sweep, "--only", "attack=passive", "--out", "out", "--jobs", "1"]
    assert code(*arguments) == 2
    *lines, last = capsys.readouterr().err.strip().splitlines()
    assert [line.split()[3] for line in lines] == ["texas100", "cifar10", "stl10", "fer2013"]
    assert "--data selects" in last
    assert not Path("out").exists()

    assert code(*arguments, "--data", "hospital", "--data", "texas100") == 2
    line, last = capsys.readouterr().err.strip().splitlines()
    assert "texas100 is not there" in line
    assert "(there: hospital)" in last
    assert not Path("out").exists()


def test_finished_runs_need_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCAPEGOAT_DATA", raising=False)
    one = ["--only", "defense=atm", "--only", "attack=fedpoisonmia-random", "--only", "partition=iid"]
    assert code(*SWEEP, *one, "--rounds", "1", "--jobs", "1", "--out", str(tmp_path / "computed")) == 0
    computed, brought = RunStore(tmp_path / "computed"), RunStore(tmp_path / "brought")
    # A run on data that is not on this machine, as another machine left it.
    chosen = {"defense": {"atm"}, "attack": {"fedpoisonmia-random"}, "partition": {"iid"}}
    [(name, spec)] = sweeping.lay_out(get("mask-selection"), data=["texas100"]).runs(chosen).items()
    (other,) = computed.finished()
    summary = computed.summary(other) | {"spec_hash": name}
    brought.write(name, spec.canonical(), computed.rounds(other), computed.targets(other), summary)
    arguments = ["sweep", "mask-selection", *one, "--data", "texas100", "--root", str(tmp_path)]
    assert code(*arguments, "--out", str(brought.directory)) == 0
    assert code(*arguments, "--out", str(tmp_path / "empty")) == 2


def test_the_status_of_timings_counts_what_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "attack-cost", "--data", "hospital", "--rounds", "1", *TINY, "--out", str(tmp_path)]
    assert code(*command, "--status") == 0
    assert "measured 0  left 5  of 5" in capsys.readouterr().out
    assert code(*command, "--only", "attack=passive,adaptive") == 0
    for part, counts in (
        ([], "measured 2  left 3  of 5"),
        (["--only", "attack=passive"], "measured 1  left 0  of 1"),
    ):
        capsys.readouterr()
        assert code(*command, *part, "--status") == 0
        assert counts in capsys.readouterr().out
    assert code("sweep", "--status", "--out", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("attack-cost: Seconds to craft an update")
    assert "measured 2  left 3  of 5" in shown


def test_the_status_of_a_sweep_without_a_finished_run_says_that_the_time_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(*SWEEP, "--out", str(tmp_path), "--status") == 0
    assert "left 4  of 4; time to go unknown until a run is finished" in capsys.readouterr().out


def test_a_run_of_an_older_version_is_damaged_for_the_sweep_its_status_and_the_result_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore(tmp_path / "out")
    command = [*SWEEP, "--out", str(store.directory), "--rounds", "1", "--jobs", "1"]
    assert code(*command) == 0
    old = store.finished()[0]
    (store.path(old) / "summary.json").write_text(json.dumps({"spec_hash": old}))
    capsys.readouterr()
    assert code(*command, "--status") == 0
    shown = capsys.readouterr().out
    assert "done 3  running 0  failed 0  damaged 1" in shown
    assert f"damaged  {old[:12]}  summary.json is of another version: attack, defense" in shown
    assert code(*command) == 1
    assert f"{old} is damaged" in capsys.readouterr().err
    files = tmp_path / "results"
    assert results(["collect", str(store.directory), "--out", str(files / "some.parquet")]) == 0
    assert results(["page", str(files), "--out", str(tmp_path / "page.md")]) == 0
    assert code(*command, "--recompute-damaged") == 0
    assert store.damaged() == []


def test_a_mistake_in_a_sweep_of_ones_own_is_one_line_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("grid: {seed: [1]}\nmetrics: [foo]\n")
    assert code("sweep", str(path), "--out", str(tmp_path / "out")) == 2
    said = capsys.readouterr().err.strip()
    assert "metrics: 'foo' is not known (known: accuracy_best" in said
    assert "\n" not in said
    assert not (tmp_path / "out").exists()


class _Sweep:
    """A sweep in a process of its own."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        arguments = [*SWEEP, "--out", str(store.directory), "--rounds", "150", "--jobs", "2"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scapegoat", *arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # Tests that run in the background of a shell inherit a SIGINT that is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def workers(self) -> list[int]:
        """Wait until two runs are under way; the processes that compute them."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            found = {
                mark["pid"]
                for path in self.store.runs.glob("*.part/progress.json")
                if (mark := _read(path)) and mark["pid"] != self.process.pid and _alive(mark["pid"])
            }
            if len(found) == 2:
                return sorted(found)
            time.sleep(0.02)
        raise AssertionError("no two runs are under way")

    def end(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=180)
        return self.process.returncode, said.decode()


def _read(path: Path) -> dict[str, int]:
    try:
        return json.loads(path.read_text())  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return {}


def _alive(pid: int) -> bool:
    try:
        # A child that its parent has not waited for yet is dead all the same.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(_alive(pid) for pid in pids)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_interrupted_and_killed_and_started_again_it_comes_to_the_same(tmp_path: Path) -> None:
    store, calm = RunStore(tmp_path / "stormy"), RunStore(tmp_path / "calm")
    first = _Sweep(store)
    workers = first.workers()
    first.process.send_signal(signal.SIGINT)
    status, said = first.end()
    assert status == 130
    assert "the same command goes on where this one was" in said
    assert "Traceback" not in said
    assert _gone(workers)
    under_way = {p.parent.name.removesuffix(".part") for p in store.runs.glob("*.part/checkpoint.safetensors")}
    assert len(under_way | set(store.finished())) >= 2, "what was under way is saved"

    second = _Sweep(store)
    workers = second.workers()
    second.process.kill()
    second.end()
    assert _gone(workers), "workers leave when their driver is gone"

    # What two workers began, this process ends.
    for folder in (store.directory, calm.directory):
        assert code(*SWEEP, "--out", str(folder), "--rounds", "150", "--jobs", "1") == 0
    assert_same_numbers(calm, store)
