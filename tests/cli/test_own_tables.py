"""From a table that somebody brings to a report, by the command line."""

import json

import pytest

from scapegoat.cli import main
from tests.data.sets.test_tables import diamonds

SMALL = [
    "--set", "data.missing=median",
    "--set", "data.validation=20",
    "--set", "model={name: mlp, hidden: [8]}",
    "--set", "federation.batch_size=16",
    "--set", "attack.targets=40",
    "--set", "attack.mask=30",
]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCAPEGOAT_CACHE", str(tmp_path / "cache"))
    diamonds(tmp_path / "diamonds.csv", count=300, lacking=0.1)


def scapegoat(capsys, *arguments):
    try:
        main(list(map(str, arguments)))
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    out, err = capsys.readouterr()
    return code, out, err


def test_one_command_from_a_mixed_table_to_a_report(tmp_path, capsys):
    code, out, err = scapegoat(
        capsys, "audit", "--data", "diamonds.csv", "--set", "data.label=cut", *SMALL, "--rounds", 2, "--jobs", 1,
        "--attack", "passive", "--attack", "fedpoisonmia", "--defense", "fedavg",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out.count("text is one-hot encoded: color 4") == 1
    assert out.count("every feature was brought to mean 0 and variance 1") == 1
    page = (tmp_path / "report.html").read_text()
    assert "text is one-hot encoded: color 4" in page
    assert "every feature was brought to mean 0 and variance 1" in page


def test_a_run_says_what_was_done_to_the_data(capsys):
    options = ["run", "--set", "data=diamonds.csv", "--set", "data.label=cut", *SMALL, "--set", "federation.rounds=1"]
    code, out, err = scapegoat(capsys, *options)
    assert (code, err) == (0, "")
    assert out.count("Note: every feature was brought to mean 0") == 1
    _, out, _ = scapegoat(capsys, *options, "--json", "--set", "data.standardize=false")
    notes = json.loads(out)["data_notes"]
    assert "text is one-hot encoded: color 4" in notes
    assert [note for note in notes if note.startswith("the features are taken as they are")]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "the columns are carat, cut, color, price, x, y"),
        (
            ["--set", "data.label=price", "--set", "data.missing=drop"],
            "task=regression takes them as numbers, data.bins=4",
        ),
        (["--set", "data.label=cut"], "missing values: carat"),
    ],
)
def test_what_is_asked_for_is_one_line(capsys, arguments, says):
    code, out, err = scapegoat(capsys, "run", "--set", "data=diamonds.csv", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_column_of_measurements_is_a_regression_and_the_run_says_so(capsys):
    options = ["run", "--set", "data=diamonds.csv", "--set", "data.label=y", "--set", "data.missing=drop", *SMALL]
    code, out, err = scapegoat(capsys, *options, "--set", "federation.rounds=1")
    assert (code, err) == (0, "")
    assert "task regression" in out
    assert "test R²" in out


def test_a_model_that_knows_only_the_most_frequent_class_is_pointed_out(tmp_path, capsys):
    lines = [f"{i % 7},{'rare' if i % 10 == 0 else 'usual'}" for i in range(300)]
    (tmp_path / "skewed.csv").write_text("\n".join(["a,label", *lines]) + "\n")
    options = ["run", "--set", "data=skewed.csv", *SMALL, "--set", "federation.rounds=1"]
    _, out, _ = scapegoat(capsys, *options)
    assert "no better than always answering the most frequent class" in out
    _, out, _ = scapegoat(capsys, *options, "--json")
    summary = json.loads(out)
    assert summary["test_accuracy"] <= summary["test_majority"]
    assert 0.8 < summary["test_majority"] < 1


def test_a_model_that_has_learnt_is_not_spoken_of(capsys):
    _, out, _ = scapegoat(
        capsys, "run", "--set", "data=diamonds.csv", "--set", "data.label=price", "--set", "data.bins=2", *SMALL,
        "--set", "federation.rounds=30",
    )  # fmt: skip
    assert "most frequent class" not in out
