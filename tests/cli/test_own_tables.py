"""From a table that somebody brings to a report, by the command line."""

import io
import json

import pytest
from rich.console import Console

from scapegoat.auditing import audit_specs
from scapegoat.cli import main
from scapegoat.cli.audit import _Grid
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["audit", "--data", "diamonds.npz"], "no such file or folder, did you mean 'diamonds.csv'?"),
        (["audit", "--data", "diamond"], "data.name: 'diamond' is not a data set, did you mean 'diamonds.csv'?"),
        (["audit", "--data", "hospitl"], "data.name: 'hospitl' is not a data set, did you mean 'hospital'?"),
        (["list", "attacks", "pasive"], "there is no 'pasive', did you mean 'passive'?"),
        (["list", "attak"], "there is no such kind, did you mean 'attacks'?"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_one_that_is_like_it(capsys, arguments, said):
    code, out, err = scapegoat(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_setting_without_its_option_is_told_where_it_goes(capsys):
    code, _, err = scapegoat(capsys, "audit", "--data", "diamonds.csv", "data.label=cut")
    assert code == 2
    assert "did you mean --set data.label=cut?" in err
    assert "--set" not in scapegoat(capsys, "audit", "diamonds.csv")[2]


def test_a_mistyped_command_gets_one_suggestion(capsys):
    _, _, err = scapegoat(capsys, "audt")
    assert err.count("Did you mean 'audit'?") == 1


def test_a_run_is_titled_by_the_file(capsys):
    _, out, _ = scapegoat(
        capsys, "run", "--set", "data=diamonds.csv", "--set", "data.label=cut", *SMALL, "--set", "federation.rounds=1"
    )
    assert out.startswith("fedpoisonmia against fedavg on csv:diamonds.csv, 1 rounds\n")


def test_no_name_is_cut_in_a_terminal_of_80_columns():
    attacks = ["gradient_ascent", "fedpoisonmia"]
    defenses = ["fedavg", "nearest_neighbour_mixing", "reputation_atm", "geometric_median", "centered_clipping"]
    chosen = [name if name != "nearest_neighbour_mixing" else [{"name": name}, {"name": "median"}] for name in defenses]
    screen = io.StringIO()
    grid = _Grid(audit_specs(data="hospital", attacks=attacks, defenses=chosen))
    Console(width=80, file=screen).print(grid.render(80))
    shown = screen.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for name in (*attacks, *defenses):
        assert name in shown
