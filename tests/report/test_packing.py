from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scapegoat import report
from scapegoat.report.model import AggregatedRows
from scapegoat.report.payload import BUDGET, relative_norm, starting_cell, stride_for, to_json
from tests.report import synthetic


def unpack(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


def run_of(data: dict[str, Any], page: report.Page, attack: str, defense: str) -> dict[str, Any]:
    matrix = page.studies[0].matrix
    cell = data["studies"][0]["cells"][matrix.attacks.index(attack)][matrix.defenses.index(defense)]
    found: dict[str, Any] = cell["runs"][0]
    return found


def test_curves_and_rows_come_out_as_they_went_in(page: report.Page) -> None:
    packed = run_of(json.loads(to_json(page)), page, "fedpoisonmia", "atm")
    run = page.studies[0].matrix.cells["fedpoisonmia", "atm"].runs[0]
    assert run.curves is not None
    assert run.rows is not None
    np.testing.assert_array_equal(unpack(packed["curves"]["accuracy"], "<f4"), run.curves.attack_accuracy)
    np.testing.assert_array_equal(unpack(packed["curves"]["test"], "<f4"), run.curves.test_accuracy)
    np.testing.assert_array_equal(unpack(packed["rows"]["client"], "<u2"), run.rows.client)
    angle = unpack(packed["rows"]["angle"], "<u2") / 65534 * np.pi
    np.testing.assert_allclose(angle, run.rows.angle, atol=5e-5)
    ratio = 2.0 ** ((unpack(packed["rows"]["norm"], "<u2").astype(float) - 32768) / 2000)
    first = run.rows.norm[: run.rows.start[1]]
    np.testing.assert_allclose(ratio[: len(first)], first / np.median(first), rtol=1e-3)
    flags = unpack(packed["rows"]["flags"], "u1")
    np.testing.assert_array_equal((flags & 1).astype(bool), run.rows.malicious)
    np.testing.assert_array_equal((flags & 2).astype(bool), run.rows.kept)
    np.testing.assert_array_equal((flags & 8).astype(bool), run.rows.scapegoat)


def test_thirty_cells_of_400_rounds_stay_far_below_six_megabytes(page: report.Page) -> None:
    assert stride_for(page, BUDGET) == 1
    assert len(report.to_html(page).encode()) < 3_000_000


def test_a_page_over_budget_draws_fewer_rounds_but_counts_them_all(page: report.Page) -> None:
    whole, thin = to_json(page), to_json(page, budget=200_000)
    assert len(thin) < len(whole) / 3
    data = json.loads(thin)
    assert data["stride"] > 1
    packed = run_of(data, page, "fedpoisonmia", "atm")
    full = run_of(json.loads(whole), page, "fedpoisonmia", "atm")
    assert packed["fates"] == full["fates"]
    assert packed["best"] == full["best"]
    assert packed["best"][0] in unpack(packed["curves"]["round"], "<u4")


@given(st.text())
def test_no_text_can_leave_the_script_element(text: str) -> None:
    title = f"{text}</script><!--<script>&\u2028"
    study = report.Study("", {}, report.Matrix((title,), ("d",), {(title, "d"): report.Cell(title, "d", reason=title)}),
                         report.verdict([]))  # fmt: skip
    packed = to_json(report.Page(title, studies=(study,)))
    assert not set("<>&\u2028\u2029") & set(packed)
    assert json.loads(packed)["studies"][0]["attacks"] == [title]


def test_the_first_cell_shown_is_the_worst_attack_on_the_recommended_rule(page: report.Page) -> None:
    study = page.studies[0]
    judged = study.verdict.of("memory_atm")
    assert judged is not None
    assert starting_cell(study) == (judged.worst_attack, "memory_atm")
    silent = replace(study, verdict=report.verdict([]))
    assert starting_cell(silent) == ("passive", "fedavg")


def test_numbers_that_json_cannot_hold_become_null(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path, synthetic.make_spec("passive", "fedavg", rounds=30))
    page = report.build(tmp_path)
    cell = page.studies[0].matrix.cells["passive", "fedavg"]
    run = cell.runs[0]
    broken = replace(run, exposed=(replace(run.exposed[0], score=float("-inf")),), aggregation={"x": float("nan")})
    matrix = replace(page.studies[0].matrix, cells={("passive", "fedavg"): replace(cell, runs=(broken,))})
    packed = to_json(replace(page, studies=(replace(page.studies[0], matrix=matrix),)))
    assert "NaN" not in packed
    assert "Infinity" not in packed
    assert run_of(json.loads(packed), page, "passive", "fedavg")["exposed"][0][4] is None


def test_lengths_are_relative_to_the_well_formed_rows_of_their_round() -> None:
    nan = float("nan")
    rows = AggregatedRows(
        round=np.arange(4),
        start=np.array([0, 3, 3, 5, 7]),  # the second round is empty, the last has no usable row
        client=np.arange(7),
        malicious=np.zeros(7, dtype=bool),
        kept=np.ones(7, dtype=bool),
        rejected=np.array([False, False, True, False, False, True, False]),
        scapegoat=np.zeros(7, dtype=bool),
        angle=np.zeros(7, dtype=np.float32),
        norm=np.array([1.0, 2.0, 1e30, 3.0, 0.0, 5.0, nan], dtype=np.float32),
    )
    packed = relative_norm(rows)
    ratio = np.where(packed == 65535, np.nan, 2.0 ** ((packed - 32768) / 2000))
    np.testing.assert_allclose(ratio, [1 / 1.5, 2 / 1.5, nan, 1.0, nan, nan, nan], rtol=1e-3)
