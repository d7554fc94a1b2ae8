"""Runs read back, and sweeps from Python: the same figures as the commands show, and the same refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

import scapegoat as sg
from scapegoat.errors import InputError, RunError
from tests.experiments import tiny

GRID = """
title: Two rules
base: {{data: {data}, model: {{name: mlp, hidden: [16]}}, federation: {{rounds: 2, clients: 5}},
       attack: {{targets: 40, mask: 20}}}}
grid: {{attack.name: [passive, fedpoisonmia], defense.name: [fedavg, atm]}}
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[sg.Findings, Path]:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "rules.yaml").write_text(GRID.format(data=tiny.DATA))
    return sg.sweep(folder / "rules.yaml", folder / "runs", jobs=1), folder


def test_a_sweep_from_python_holds_every_cell_and_its_table(swept: tuple[sg.Findings, Path]) -> None:
    found, _ = swept
    rows = found.to_frame().to_pylist()
    assert {(row["attack"], row["defense"]) for row in rows} == {
        (attack, rule) for attack in ("passive", "fedpoisonmia") for rule in ("fedavg", "atm")
    }
    assert found.page.sections[0].title == "Two rules"
    assert "Two rules" in found.to_html()
    assert "4 runs of 1 setting)" in repr(found)


def test_a_second_sweep_computes_nothing_again(swept: tuple[sg.Findings, Path]) -> None:
    _, folder = swept
    events: list[str] = []
    sg.sweep(folder / "rules.yaml", folder / "runs", jobs=1, on_event=lambda event: events.append(event.kind))
    assert set(events) == {"skipped"}


def test_only_some_cells_are_computed_when_only_some_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(GRID.format(data=tiny.DATA))
    found = sg.sweep(tmp_path / "rules.yaml", tmp_path / "runs", jobs=1, only=["defense.name=atm"])
    assert {row["defense"] for row in found.to_frame().to_pylist()} == {"atm"}


def test_loaded_runs_are_those_of_the_folder(swept: tuple[sg.Findings, Path], tmp_path: Path) -> None:
    found, folder = swept
    loaded = sg.load(folder / "runs", title="Again")
    assert loaded.to_frame().to_pylist() == found.to_frame().to_pylist()
    assert loaded.verdicts[0].text == found.verdicts[0].text
    assert "<title>Again" in loaded.save(tmp_path / "report.html").read_text(encoding="utf-8")


def test_runs_of_several_settings_are_told_apart(tmp_path: Path) -> None:
    for rounds in (2, 3):
        sg.run(tiny.spec(rounds=rounds), store=tmp_path)
    settings = {row["setting"] for row in sg.load(tmp_path).to_frame().to_pylist()}
    assert len(settings) == 2


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no runs"):
        sg.load(tmp_path)


def test_a_sweep_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'main-c08'"):
        sg.sweep("main-c8", tmp_path / "runs")
    with pytest.raises(InputError, match="texas100 not there, nothing was computed"):
        sg.sweep("main-c08", tmp_path / "runs", data=["texas100"], root=tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_sweep_with_failed_runs_says_how_many_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaking.py").write_text(
        "from scapegoat.aggregation import Rule\n\n\nclass Breaking(Rule):\n"
        "    def aggregate(self, stack, context):\n        raise ValueError('no update is good enough')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    grid = GRID.format(data=tiny.DATA).replace("defense.name: [fedavg, atm]", "defense.name: ['breaking:Breaking']")
    (tmp_path / "rules.yaml").write_text(grid)
    with pytest.raises(RunError, match=r"rules: 2 runs failed \(.*no update is good enough"):
        sg.sweep(tmp_path / "rules.yaml", tmp_path / "runs", jobs=1)
