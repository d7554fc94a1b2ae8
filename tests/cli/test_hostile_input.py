"""Input that would fill the memory, wait for ever or come to a traceback: refused at once, in one line, exit code 2."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from scapegoat.cli import LONGEST_LINE, main, one_line

MEGABYTES = 300
BILLION_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 10)
)
MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 9)}]}}\n" for k in range(1, 9)
)
MANY_CELLS = "grid:\n" + "".join(
    f"  {key}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n"
    for key in (
        "seed",
        "federation.rounds",
        "federation.batch_size",
        "attack.targets",
        "attack.mask",
        "attack.start_round",
        "data.train",
        "threads",
    )
)


# The peak of the process itself: what `wait4` tells counts the memory of the process that it was forked from.
WATCHED = """
import sys
from scapegoat.cli import main
try:
    main(sys.argv[1:])
finally:
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def refused(tmp_path: Path, *arguments: str) -> str:
    """What the command says on its way out; fails if it took much memory, wrote anything or answered otherwise."""
    before = sorted(path.name for path in tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("scapegoat: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert int(done.stdout) < MEGABYTES * 1024
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    return done.stderr


@pytest.mark.parametrize("text", [BILLION_LAUGHS, MERGES], ids=["lists", "merged mappings"])
@pytest.mark.parametrize("command", [["run"], ["sweep"]])
def test_aliases_that_multiply_are_refused(tmp_path: Path, command: list[str], text: str) -> None:
    (tmp_path / "spec.yaml").write_text(text)
    assert len(text) < 800
    assert "more than 10,000 values" in refused(tmp_path, *command, "spec.yaml")


@pytest.mark.parametrize("command", [["run"], ["sweep", "main-c08"], ["audit"]])
def test_aliases_that_multiply_are_refused_in_an_override(tmp_path: Path, command: list[str]) -> None:
    text = "{" + BILLION_LAUGHS.replace("]\n", "], ") + "}"
    assert "more than 10,000 values" in refused(tmp_path, *command, "--set", f"data={text}")


@pytest.mark.parametrize("command", [["run"], ["sweep"]])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, command: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zeros.yaml").symlink_to("/dev/zero")
    (tmp_path / "folder.yaml").mkdir()
    for name in ("pipe.yaml", "zeros.yaml", "folder.yaml"):
        assert f"{name}: cannot be read (not a regular file)" in refused(tmp_path, *command, name)


def test_a_file_too_long_to_be_written_by_hand_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "long.yaml").open("wb") as file:
        file.truncate(1 << 40)
    assert "too long" in refused(tmp_path, "run", "long.yaml")


def test_a_sweep_of_too_many_cells_or_runs_is_refused_with_the_limit(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MANY_CELLS)
    said = refused(tmp_path, "sweep", "mine.yaml", "--out", "out")
    assert "mine.yaml: grid: 100,000,000 cells are too many (allowed: up to 10,000)" in said
    for command in (["sweep", "main-c08"], ["audit"]):
        assert "up to 100,000 runs" in refused(tmp_path, *command, "--seeds", "1000000000")
        assert "at most 1,024" in refused(tmp_path, *command, "--jobs", "1000000")


LONG = "x" * 300


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", LONG], "File name too long"),
        (["run", "--out", LONG], "File name too long"),
        (["run", "--root", LONG, "--set", "data=texas100"], "texas100"),
        (["sweep", f"{LONG}.yaml"], "File name too long"),
        (["sweep", LONG], "there is none of that name"),
        (["sweep", "main-c08", "--out", LONG], "File name too long"),
        (["sweep", "--status", "--out", LONG], "File name too long"),
        (["audit", "--out", LONG], "File name too long"),
        (["audit", "--report", f"{LONG}/report.html"], "--report"),
        (["report", LONG], "x"),
        (["run", "--set", f"data=npz:{LONG}"], "x"),
        (["run", "--set", "federation.rounds=" + "9" * 20], "federation.rounds"),
        (["sweep", "main-c08", "--data", "hospital", "--rounds", "9" * 20], "federation.rounds"),
        (["audit", "--rounds", "9" * 20], "federation.rounds"),
        (["audit", "--clients", "9" * 20], "federation.clients"),
        (["run", "--set", "threads=1000000"], "threads"),
        (["run", "--set", "seed=" + "[" * 3000 + "]" * 3000], "nested too deeply"),
        (["run", "--set", ".".join(["a"] * 3000) + "=1"], "nested too deeply"),
        (["run", "--set", "seed=0x" + "f" * 6000], "more than 100 digits"),
        (["run", "--set", "seed=" + ":".join(["1"] * 6000)], "more than 100 digits"),
        (["run", "--set", "data=" + "x" * 5000], "is not a data set"),
        (["run", "--set", "attack=cunning"], "'cunning' is not an attack"),
        (["run", "--set", "defense=\x1b[2J"], "special characters are not allowed"),
        (["run", "\x1b]0;mine\x07.yaml"], r"\x1b]0;mine\x07.yaml: cannot be read"),
    ],
)
def test_a_value_out_of_all_proportion_is_one_line(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    said = capsys.readouterr().err
    assert stop.value.code == 2, said
    assert says in said
    assert len(said) <= LONGEST_LINE + 100
    assert said.rstrip("\n").isprintable()
    assert list(tmp_path.iterdir()) == []


def test_a_message_stays_on_one_line_that_no_terminal_obeys() -> None:
    assert one_line("a\n\tb\x1b[2J\x00\u202ec\x85d") == r"a b\x1b[2J\x00\u202ec d"
    assert one_line("naïve 東京") == "naïve 東京"
    long = one_line("a" * 5000 + "b" * 5000)
    assert long.startswith("aaa")
    assert long.endswith("bbb")
    assert len(long) < LONGEST_LINE + 10


HOSTILE = [
    "", " ", "-1", "0", "9" * 20, "9" * 400, "1e999", "-0", "nan", "null", "~", "true", "[]", "{}",
    "[[[[]]]]", "{a: {b: {c: 1}}}",
    "\x01", "\x1b[31m", "\u202e", "\udcff", "🦙" * 50, "é", "a" * 300, "a/" * 2000, "/", ".", "..", "*x", "&x 1"
   , "!!python/name:os", "!!set {a}",
    "!!binary aGk=", "!!omap [a: 1]", "2020-01-01", "? [a]", "%", "@", "`", "'", '"', "=", "=1", "a=", "a.b",
    "a..b=1", "=" * 50, "{" * 200, "- " * 200,
    "npz:", "parquet:", "images:", "npz:" + "a" * 300, "x:y", ":", "os:system", "name", "0x", "0b2", "1:2:3",
    "+.inf", "<<", "a,b", "=,=",
]  # fmt: skip
KEYS = [
    "seed", "data", "data.name", "data.records", "data.train", "data.validation", "model", "model.hidden",
    "model.hidden.0", "federation",
    "federation.rounds", "federation.clients", "federation.malicious", "federation.fraction", "federation.batch_size",
    "federation.partition", "federation.local", "federation.local.epochs", "federation.server",
    "federation.server.lr", "federation.schedule",
    "attack", "attack.targets", "attack.mask", "attack.start_round", "attack.gamma", "defense",
    "defense.trim", "evaluation.every", "threads", "nothing", "a.b.c",
]  # fmt: skip
OPTIONS = {
    "sweep": ["--data", "--rounds", "--seeds", "--set", "--only", "--jobs", "--out", "--root"],
    "audit": ["--model", "--data", "--defense", "--attack", "--clients", "--malicious", "--rounds", "--seeds", "--set"],
    "run": ["--set", "--root"],
    "report": ["--out", "--format", "--title", "--figures"],
    "list": [],
    "data": [],
}


def _draw(rng: random.Random) -> list[str]:
    command = rng.choice(["run", "run", "run", "sweep", "audit", "report", "list", "data"])
    arguments = [command]
    if rng.random() < {"run": 0.1, "audit": 0.1, "sweep": 0.5}.get(command, 1.0):
        arguments.append(rng.choice(HOSTILE))
    elif command == "sweep":
        arguments.append("main-c08")
    for _ in range(rng.randint(1, 2)):
        if OPTIONS[command]:
            option = rng.choice(OPTIONS[command])
            value = rng.choice(HOSTILE)
            arguments += [option, f"{rng.choice(KEYS)}={value}" if option == "--set" and rng.random() < 0.9 else value]
    return arguments


def test_whatever_is_typed_the_answer_is_a_result_or_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def computed(*_arguments: object, **_options: object) -> None:
        raise SystemExit(0)  # the input was taken

    for place in (
        "scapegoat.experiments.run.run",
        "scapegoat.experiments.executors.execute",
        "scapegoat.auditing.auditor.prepare",
    ):
        monkeypatch.setattr(place, computed)
    monkeypatch.chdir(tmp_path)
    rng = random.Random(20)
    for _ in range(150):
        arguments = _draw(rng)
        try:
            with pytest.raises(SystemExit) as stop:
                main(arguments)
        except Exception as error:
            raise AssertionError(arguments) from error
        said = capsys.readouterr().err
        if stop.value.code not in (None, 0):
            assert stop.value.code == 2, (arguments, said)
            assert len(said.splitlines()) == 1 or said.startswith("missing: "), (arguments, said)
