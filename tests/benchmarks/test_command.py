"""`python -m benchmarks`: every subject or those named, as text or as one JSON object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from benchmarks import aggregation, sweep
from benchmarks import round as rounds
from benchmarks.__main__ import SUBJECTS, main


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks that say how they were called instead of measuring."""
    monkeypatch.setattr(rounds, "run", lambda **options: {"subject": "round", **options})
    monkeypatch.setattr(sweep, "run", lambda **options: {"subject": "sweep", "ratio": 1.23456, **options})


def test_every_file_that_measures_is_a_subject() -> None:
    folder = Path(benchmarks.__path__[0])
    measuring = {path.stem for path in folder.glob("*.py") if "\ndef run(" in path.read_text()}
    assert measuring == set(SUBJECTS)


@pytest.mark.usefixtures("quick")
def test_the_json_is_one_object_by_subject(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["round", "sweep", "--json", "--quick"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "round": {"subject": "round", "quick": True},
        "sweep": {"subject": "sweep", "ratio": 1.23456, "quick": True},
    }


@pytest.mark.usefixtures("quick")
def test_the_text_names_the_subject_and_rounds_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == ["sweep:", "  subject: sweep", "  ratio: 1.235"]


@pytest.mark.usefixtures("quick")
def test_threads_reach_the_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["round", "--threads", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["round"]["threads"] == 3


def test_a_size_and_rules_reach_the_benchmark_of_rules(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aggregation, "run", lambda **options: options)
    assert main(["aggregation", "--json", "--size", "50x3200000", "--rules", "atm", "median"]) == 0
    told = json.loads(capsys.readouterr().out)["aggregation"]
    assert told == {"quick": False, "sizes": [[50, 3_200_000]], "rules": ["atm", "median"]}


def test_what_is_no_size_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["aggregation", "--size", "50"])
    assert "'50' is no size" in capsys.readouterr().err


def test_without_a_name_all_are_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Subject:
        @staticmethod
        def run(**_: Any) -> dict[str, Any]:
            return {}

    monkeypatch.setattr("importlib.import_module", lambda name: Subject)
    assert main(["--json"]) == 0
    assert tuple(json.loads(capsys.readouterr().out)) == SUBJECTS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["everything"], "'everything' is not a benchmark (known: round, clipping, attack"),
        (["sweep", "--threads", "2"], "only for aggregation, attack, clipping, round, sketches"),
        (["round", "--threads", "0"], "--threads: 0"),
        (["round", "--rules", "atm"], "--size and --rules are only for the subject aggregation"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not printed.out
