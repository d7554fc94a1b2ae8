"""Run folders vouch for themselves; what does not match is damaged, and named."""

from __future__ import annotations

import json
import random
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from results.__main__ import main as results
from scapegoat import report, run_folders, stored_json
from scapegoat.cli import main
from scapegoat.errors import InputError
from scapegoat.experiments import RunStore, parse
from scapegoat.experiments.executors import execute, named
from scapegoat.sweeping import file as plan_file
from scapegoat.sweeping import lay_out, write
from scapegoat.sweeps import get
from scapegoat.terminal import printable
from tests.cli import hostile
from tests.experiments.tiny import SETTINGS, spec


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """Two runs that differ in the defense. Read it, never write it."""
    store = RunStore(tmp_path_factory.mktemp("store"))
    assert execute([spec(defense="fedavg", rounds=2), spec(defense="atm", rounds=2)], store).complete
    return store


@pytest.fixture
def store(whole: RunStore, tmp_path: Path) -> RunStore:
    import shutil

    shutil.copytree(whole.directory, tmp_path / "store")
    return RunStore(tmp_path / "store")


def unseal(store: RunStore, *names: str) -> None:
    """As earlier versions wrote runs; all of them unless some are named."""
    for name in names or store.finished():
        path = store.path(name) / "summary.json"
        summary = json.loads(path.read_text())
        del summary["digests"]
        path.write_text(json.dumps(summary))


def test_a_run_is_sealed_and_its_summary_is_read_back_as_it_was_handed_over(whole: RunStore) -> None:
    for name in whole.finished():
        found = whole.inspect(name)
        assert (found.problem, found.lacking, found.sealed) == ("", "", True)
        assert "digests" not in found.summary
        assert whole.damaged() == []


def test_a_run_of_an_earlier_version_has_no_seal_and_is_still_read(store: RunStore) -> None:
    unseal(store)
    assert store.damaged() == []
    assert not any(store.inspect(name).sealed for name in store.finished())
    assert len(report.build(store.directory).studies[0].matrix.defenses) == 2


def test_that_a_run_has_lost_its_seal_is_said_wherever_its_figures_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    hostile.build(folder)
    store, audit = (
        RunStore(folder),
        ["audit", *hostile.AUDIT, "--out", str(folder), "--report", str(tmp_path / "a.html")],
    )

    def said(*command: str) -> str:
        with pytest.raises(SystemExit):
            main(list(command))
        return capsys.readouterr().out

    def everywhere() -> list[str]:
        page = tmp_path / "report.html"
        shown = [said("report", str(folder), "--out", str(page)), said("report", str(folder), "--format", "markdown")]
        shown += [page.read_text(), said("sweep", "--status", "--out", str(folder)), said(*audit)]
        return [*shown, (tmp_path / "a.html").read_text()]

    assert not [text for text in everywhere() if "sealed" in text]
    one, other = (store.path(name) for name in store.finished()[:2])
    for file in run_folders.TABLES:
        (one / file).write_bytes((other / file).read_bytes())
    unseal(store, one.name)
    assert all("1 run is not sealed: its tables are not verified" in text for text in everywhere())
    unseal(store, *(name for name in store.finished() if name != one.name))
    assert all("4 runs are not sealed: their tables are not verified" in text for text in everywhere())


def test_the_name_of_a_run_follows_from_its_stored_spec_alone(whole: RunStore) -> None:
    for name in whole.finished():
        plain = json.loads((whole.path(name) / "spec.json").read_text())
        assert run_folders.name_of(plain) == parse(plain).hash == name
    made = {"model": {"name": "no.such.package:Class"}, "data": {"name": "x"}, "attack": {"name": "y"}, "defense": "z"}
    run_folders.check_spec(made, run_folders.name_of(made))


def test_a_run_with_the_largest_seed_that_a_spec_may_have_is_whole(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert execute([spec(rounds=1, seed=10**99)], store).complete
    assert store.damaged() == []
    assert results(["collect", str(tmp_path), "--out", str(tmp_path / "some.parquet")]) == 0
    assert report.to_html(report.build(tmp_path))


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("swapped", [("spec.json",), ("summary.json",), run_folders.FILES])
def test_files_swapped_between_two_runs_are_noticed(store: RunStore, sealed: bool, swapped: tuple[str, ...]) -> None:
    if not sealed:
        unseal(store)
    one, other = (store.path(name) for name in store.finished())
    for file in swapped:
        first, second = (one / file).read_bytes(), (other / file).read_bytes()
        (one / file).write_bytes(second)
        (other / file).write_bytes(first)
    assert store.damaged() == store.finished()
    page = report.build(store.directory, sections=[report.Section("", ())])
    assert not any(cell.measures for study in page.studies for cell in study.matrix.cells.values())


def test_tables_swapped_between_sealed_runs_are_noticed(store: RunStore) -> None:
    one, other = (store.path(name) / "targets.parquet" for name in store.finished())
    other.write_bytes(one.read_bytes())
    assert store.problem(other.parent.name) == "targets.parquet has changed since the run was written"
    assert store.problem(one.parent.name) is None


def test_any_flipped_bit_of_a_sealed_run_is_noticed(store: RunStore) -> None:
    draw = random.Random(0)
    name = store.finished()[0]
    for _ in range(150):
        path = store.path(name) / draw.choice(run_folders.FILES)
        data = path.read_bytes()
        place, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
        path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        changed = path.suffix != ".json" or _content(path.read_bytes()) != _content(data)
        assert (store.problem(name) is not None) or not changed, (path.name, place, bit)
        path.write_bytes(data)
    assert store.problem(name) is None


def _content(data: bytes) -> Any:
    """White space between values is no content."""
    try:
        return json.loads(data)
    except ValueError:
        return data


def test_who_is_a_member_is_for_the_owner_alone(whole: RunStore) -> None:
    for name in whole.finished():
        assert stat.S_IMODE((whole.path(name) / "targets.parquet").stat().st_mode) == 0o600


def test_each_file_is_read_once(whole: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = stored_json.read_bytes

    def watched(path: Path, *limit: int) -> bytes:
        read.append(path.name)
        return original(path, *limit)

    monkeypatch.setattr(stored_json, "read_bytes", watched)
    assert whole.problem(whole.finished()[0]) is None
    assert sorted(read) == sorted(run_folders.FILES)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a":' * 90 + b"1" + b"}" * 90, "is nested too deeply"),
        (b'{"a": NaN}', "holds NaN"),
        (b'{"a": 1e999}', "holds a number that is out of range"),
        (b'{"a": ' + b"9" * 400 + b"}", "holds a number that is out of range"),
        (b'{"a": "\\ud800"}', "holds text that is not Unicode"),
        (b"[]", "is not a JSON object"),
        (b"\xff", "is not JSON"),
    ],
)
def test_json_beyond_the_limits_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        stored_json.loads(content)


def test_what_never_ends_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "summary.json").symlink_to("/dev/zero")
    with pytest.raises(FileNotFoundError):
        stored_json.read(tmp_path / "summary.json")


@pytest.mark.parametrize(
    "progress",
    [
        {"round": "x", "rounds": [], "pid": "1", "host": 3, "time": None},
        {"round": -5, "rounds": 10**14, "pid": 10**14},
        {"round": 7, "rounds": 3, "pid": -1},
        {"round": True, "rounds": 1.5, "pid": True},
    ],
)
def test_a_progress_file_that_cannot_be_believed_counts_for_nothing(tmp_path: Path, progress: dict[str, Any]) -> None:
    import socket

    progress = {"host": socket.gethostname(), "time": time.time(), **progress}
    (tmp_path / "progress.json").write_text(json.dumps(progress))
    mark = run_folders.read_mark(tmp_path)
    assert 0 <= mark.round <= mark.rounds
    assert not mark.running


class TestPlans:
    def lay_out(self, folder: Path) -> Path:
        return write(lay_out(get("mask-selection"), data=["hospital"], rounds=2, overrides=SETTINGS), folder)

    def test_the_plans_of_every_sweep_are_read_back(self, tmp_path: Path) -> None:
        for name in ("mask-selection", "target-count", "attack-cost", "defense-cost", "non-iid-degree"):
            path = write(lay_out(get(name), data=["hospital"], seeds=2), tmp_path)
            assert plan_file.read(path)["sweep"] == name

    @pytest.mark.parametrize(
        "change",
        [
            {"seeds": 10**9},
            {"seeds": 2},
            {"cells": []},
            {"axes": []},
            {"kind": "figure"},
            {"layout": {"rows": ["data"], "columns": ["attack"]}},
            {"title": 3},
        ],
    )
    def test_a_plan_that_is_no_full_grid_is_refused(self, tmp_path: Path, change: dict[str, Any]) -> None:
        path = self.lay_out(tmp_path)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(InputError, match=path.name):
            plan_file.read(path)

    def test_a_run_of_a_plan_is_no_path(self, tmp_path: Path) -> None:
        path = self.lay_out(tmp_path)
        content = json.loads(path.read_text())
        content["cells"][0]["runs"] = ["../../elsewhere"]
        path.write_text(json.dumps(content))
        with pytest.raises(InputError, match="runs"):
            plan_file.read(path)

    def test_a_damaged_plan_is_named_and_the_others_are_shown(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = self.lay_out(tmp_path)
        (path.parent / "other.json").write_text('{"format": 1, "seeds": 1000000000}')
        with pytest.raises(SystemExit) as stop:
            main(["sweep", "--status", "--out", str(tmp_path)])
        said = capsys.readouterr()
        assert stop.value.code == 0
        assert "mask-selection" in said.out
        assert "other.json" in said.err

    def test_more_seeds_than_anybody_could_run_are_refused_at_once(self) -> None:
        with pytest.raises(InputError, match="at most"):
            lay_out(get("mask-selection"), data=["hospital"], seeds=10**9)


def test_text_for_a_terminal_holds_nothing_that_it_would_obey() -> None:
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(chr(draw.choice((draw.randrange(256), draw.randrange(0x110000)))) for _ in range(20))
        assert "\x1b" not in printable(text)
        assert all(c.isprintable() or c in "\n\t\xa0" for c in printable(text, lines=True) if ord(c) < 256)
        printable(text).encode("utf-8")
    assert printable("Größe [0.1, 0.2] – ok") == "Größe [0.1, 0.2] – ok"
    assert printable("\x1b[31m\u202e") == "\\x1b[31m\\u202e"


def test_a_failure_reason_does_not_reach_the_terminal_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from scapegoat.experiments.executors.heartbeat import Heartbeat

    store = RunStore(tmp_path)
    [(name, parsed)] = named([spec()]).items()
    beat = Heartbeat(store, name, parsed.canonical())
    beat.start()
    beat.failed("\x1b]0;owned\x07 no luck", "")
    path = TestPlans().lay_out(tmp_path)
    content = json.loads(path.read_text())
    content["cells"][0]["runs"] = [name]
    path.write_text(json.dumps(content))
    with pytest.raises(SystemExit):
        main(["sweep", "--status", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "no luck" in said
    assert "\x1b" not in said
