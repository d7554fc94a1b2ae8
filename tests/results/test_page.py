"""The page of results: figures that are all read from files, and what is missing from them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from results import files
from results.__main__ import main
from results.files import collect, load, save
from results.page import page
from scapegoat import sweeping
from scapegoat.errors import InputError, StorageError
from scapegoat.experiments import RunStore
from scapegoat.experiments.executors import execute
from scapegoat.sweeping import costs
from scapegoat.sweeps import get
from tests.experiments.tiny import SETTINGS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    only = {"defense": {"atm"}, "partition": {"iid"}}
    plan = sweeping.lay_out(get("mask-selection"), data=["hospital"], rounds=2, overrides=SETTINGS)
    assert execute(plan.runs(only).values(), folder).complete
    sweeping.write(plan, folder)
    timing = sweeping.lay_out(get("attack-cost"), data=["hospital"], rounds=1, overrides=SETTINGS)
    table, figures = costs.measure(timing, {})
    costs.save(table, folder, "attack-cost")
    sweeping.write(timing, folder, figures)
    return folder


def test_a_result_file_holds_every_run_whole(store: Path, tmp_path: Path) -> None:
    save(collect(store), tmp_path / "tiny.parquet")
    table = pq.read_table(tmp_path / "tiny.parquet")
    runs = RunStore(store)
    assert sorted(table["run"].to_pylist()) == runs.finished()
    assert set(table["attack.selection"].to_pylist()) == {"greedy", "random"}
    assert table["federation.rounds"].to_pylist() == [2, 2]
    read = load(tmp_path)
    for name in runs.finished():
        assert read.runs[name]["spec"] == runs.spec(name)
        assert read.runs[name]["summary"] == runs.summary(name)
    low = dict(zip(table["run"].to_pylist(), table["membership.accuracy_best_ci_low"].to_pylist(), strict=True))
    assert all(low[n] == runs.summary(n)["membership"]["accuracy_best_ci"][0] for n in low)
    assert len(read.costs) == 5
    assert {plan["sweep"] for plan in read.plans} == {"attack-cost", "mask-selection"}


def test_the_page_names_its_sources_and_what_is_missing(store: Path, tmp_path: Path) -> None:
    for arguments in (
        ["collect", str(store), "--out", str(tmp_path / "tiny.parquet")],
        ["page", str(tmp_path), "--out", str(tmp_path / "README.md")],
    ):
        assert main(arguments) == 0
    written = (tmp_path / "README.md").read_text()
    assert "scapegoat sweep mask-selection --data hospital --rounds 2" in written
    assert "| mask-selection | 2 of 24 |" in written
    assert "`tiny.parquet` (2 runs)" in written
    assert "torch" in written
    assert "Not run: async-c08" in written
    assert "**not tested**" in written
    assert str(store) not in written, "no path of a machine"
    for name in RunStore(store).finished():
        assert f"{RunStore(store).summary(name)['membership']['accuracy_best']:.3f}" in written


def test_sweeps_whose_files_lie_in_a_folder_of_their_own_are_not_called_missing(store: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    (figures / "apart").mkdir(parents=True)
    plan = sweeping.lay_out(get("target-count"), data=["hospital"], rounds=2, overrides=SETTINGS)
    name, spec = next(iter(plan.runs().items()))
    other = tmp_path / "other"
    assert execute([spec], other).complete
    sweeping.write(plan, other)
    save(collect(store), figures / "tiny.parquet")
    save(collect(other), figures / "apart" / "counts.parquet")
    written = page(figures)
    assert f"(1 of {len(plan.runs())} runs, in `apart/`)" in written
    assert "`apart/counts.parquet` (1 runs)" in written
    missing = next(line for line in written.splitlines() if line.startswith("Not run: "))
    assert "target-count" not in missing.split(".")[0]
    assert name not in load(figures).runs, "no claim of the paper's rests on runs that lie apart"


def test_a_damaged_run_is_left_out_and_named(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "store"
    shutil.copytree(store, folder)
    broken, sound = RunStore(folder).finished()
    (folder / "runs" / broken / "rounds.parquet").write_bytes(b"PAR1")
    assert main(["collect", str(folder), "--out", str(tmp_path / "tiny.parquet")]) == 0
    assert f"left out: run {broken} (" in capsys.readouterr().err
    assert pq.read_table(tmp_path / "tiny.parquet")["run"].to_pylist() == [sound]


def test_what_is_no_result_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no result files"):
        load(tmp_path)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"bad\.parquet: is not a result file"):
        load(tmp_path)
    with pytest.raises(InputError, match="holds no finished runs"):
        collect(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["collect", "absent", "--out", "a.parquet"], "absent: holds no finished runs"),
        (["page", "absent", "--out", "README.md"], "absent: holds no result files"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert says in printed
    assert len(printed.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_page_says_which_claims_rest_on_part_of_a_sweep(store: Path, tmp_path: Path) -> None:
    save(collect(store), tmp_path / "tiny.parquet")
    lines = page(tmp_path).splitlines()
    rows = [line for line in lines if line.startswith("| ") and "Greedy mask selection" in line]
    assert rows
    assert rows[0].endswith("| mask-selection: 2 of 24 runs |")
    headings = [line.split(".")[0] for line in lines if line.startswith("### ") and line[4].isdigit()]
    assert headings == [f"### {n}" for n in range(1, len(headings) + 1)]


def test_the_page_says_that_a_run_computed_again_may_differ(store: Path, tmp_path: Path) -> None:
    save(collect(store), tmp_path / "tiny.parquet")
    (day,) = {row["date"] for row in load(tmp_path).runs.values()}
    assert f"Runs by day: 2 on {day}. Computed again by another version, a run may differ" in page(tmp_path)


def test_what_is_known_of_runs_computed_again_is_printed_only_where_it_lies_beside_the_files(
    store: Path, tmp_path: Path
) -> None:
    save(collect(store), tmp_path / "tiny.parquet")
    own = (Path(files.__file__).parent / "computed-again.md").read_text()
    measured = [words for words in re.split("[;:.]? ?\n|[;:.] ", own) if any(c.isdigit() for c in words)]
    assert measured
    without = page(tmp_path)
    assert "Every number on this page is read from the Parquet files" in without
    assert not any(words in without for words in measured)
    (tmp_path / "computed-again.md").write_text("Of 5 runs\n4 came out the same.\n")
    told = page(tmp_path)
    assert "Every number on this page but those on runs computed again is read" in told
    assert "Of 5 runs 4 came out the same." in told


def test_intervals_of_a_test_accuracy_are_over_the_test_records(store: Path, tmp_path: Path) -> None:
    save(collect(store), tmp_path / "tiny.parquet")
    captions = [line for line in page(tmp_path).splitlines() if "One seed; " in line]
    assert [line.rsplit("One seed; ", 1)[1] for line in captions] == [
        "intervals over the targets.",
        "intervals over the test records.",
    ]


def test_a_write_that_fails_leaves_what_was_there(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny.parquet"
    save(collect(store), path)
    before = path.read_bytes()

    def full(table: Any, draft: Path, **_: Any) -> None:
        draft.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.pq, "write_table", full)
    with pytest.raises(StorageError, match="No space left"):
        save(collect(store), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.parquet"]
