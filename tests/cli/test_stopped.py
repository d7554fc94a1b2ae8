"""Ctrl-C in `scapegoat run`: what it says about going on is true. A folder that cannot be written is noticed first."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scapegoat.cli import main
from scapegoat.experiments import RunStore
from tests.experiments.tiny import SETTINGS, assert_same_numbers

# A step of the attack long enough that a signal lands inside a round.
SLOW = """
import sys, time
from scapegoat.federation.simulation import Simulation
inside = Simulation._trained
def slowly(self):
    print("round", file=sys.stdout, flush=True)
    record = inside(self)
    time.sleep({seconds})
    return record
Simulation._trained = slowly
from scapegoat.cli import main
main(sys.argv[1:])
"""
RUN = ["run", *(part for setting in SETTINGS for part in ("--set", setting)), "--set", "attack.targets=40"]


def stopped(*arguments: str, seconds: float = 0.3, presses: int = 1) -> tuple[int, str]:
    """Press Ctrl-C inside the second round; the exit code and what was said."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW.format(seconds=seconds), *RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background lets them ignore Ctrl-C, and what they start as well.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == "round\n"
    time.sleep(0.1)
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_one_ctrl_c_ends_the_round_and_saves_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    kept, calm = RunStore(tmp_path / "kept"), RunStore(tmp_path / "calm")
    rounds = ["--set", "federation.rounds=5"]
    code, said = stopped(*rounds, "--out", str(kept.directory))
    assert (code, said) == (
        130,
        "scapegoat: stopped; 2 of 5 rounds are saved, the same command goes on where this one was\n",
    )
    (part,) = kept.runs.glob("*.part")
    saved = kept.load_checkpoint(part.name.removesuffix(".part"))
    assert saved is not None
    for out in (kept, calm):
        with pytest.raises(SystemExit) as stop:
            main([*RUN, *rounds, "--out", str(out.directory)])
        assert stop.value.code == 0
    assert_same_numbers(kept, calm)


def test_a_second_ctrl_c_stops_at_once_and_promises_nothing(tmp_path: Path) -> None:
    code, said = stopped("--out", str(tmp_path), seconds=2.0, presses=2)
    assert (code, said) == (130, "scapegoat: stopped before a round was saved\n")


def test_without_a_folder_nothing_is_promised() -> None:
    assert stopped() == (130, "scapegoat: stopped; nothing is kept of a run without --out DIR\n")


@pytest.mark.parametrize("command", [["run"], ["sweep", "main-c08", "--data", "hospital"], ["audit"]])
def test_a_folder_that_cannot_be_written_is_noticed_before_anything_is_computed(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def computed(*_arguments: object, **_options: object) -> None:
        raise AssertionError("something is computed")

    for place in (
        "scapegoat.experiments.run",
        "scapegoat.experiments.executors.execute",
        "scapegoat.auditing.auditor.prepare",
    ):
        monkeypatch.setattr(place, computed)
    # Nobody may make a folder there, not even root, whom permissions do not stop.
    with pytest.raises(SystemExit) as stop:
        main([*command, "--out", "/proc/self/runs"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("scapegoat: --out /proc/self/runs: runs cannot be written there (")
    assert len(said.splitlines()) == 1


def test_looking_whether_a_folder_can_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["run", "--set", "defense=nothing", "--out", "deep/below"])
    assert stop.value.code == 2
    assert list(tmp_path.iterdir()) == []
