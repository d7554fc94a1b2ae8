from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from scapegoat import report
from scapegoat.membership.metrics import tpr_at_fpr
from scapegoat.report.detail import curves_of, exposed_of, exposure_of, fates_of, roc_of, rows_of

one_row = st.tuples(st.integers(0, 5), st.booleans(), st.booleans(), st.booleans())
some_rounds = st.lists(st.lists(one_row, max_size=6, unique_by=lambda row: row[0]), min_size=1, max_size=12)


def rounds_table(rounds: list[list[tuple[int, bool, bool, bool]]]) -> pa.Table:
    kinds = {"clients": pa.int32(), "malicious": pa.bool_(), "kept": pa.bool_(), "rejected": pa.bool_()}
    columns = {
        name: pa.array([[row[i] for row in rows] for rows in rounds], pa.list_(kind))
        for i, (name, kind) in enumerate(kinds.items())
    }
    return pa.table({"round": pa.array(range(len(rounds)), pa.int32()), **columns})


@settings(deadline=None)
@given(some_rounds)
def test_who_was_the_scapegoat_equals_a_plain_count(rounds: list[list[tuple[int, bool, bool, bool]]]) -> None:
    expected: dict[int, list[int]] = {}
    for rows in rounds:
        hostile = any(malicious for _, malicious, _, _ in rows)
        hostile_kept = any(malicious and kept for _, malicious, kept, _ in rows)
        for client, malicious, kept, rejected in rows:
            counts = expected.setdefault(client, [0] * 6)
            counts[0] += 1
            counts[1] += kept
            counts[2] += not kept and not rejected
            counts[3] += rejected
            counts[4] += hostile
            counts[5] += not malicious and not kept and not rejected and hostile_kept
    found = fates_of(rows_of(rounds_table(rounds)))
    assert {f.client: [f.rounds, f.kept, f.discarded, f.rejected, f.contested, f.scapegoat] for f in found} == expected


def test_a_slice_of_a_table_is_read_as_the_slice_it_is() -> None:
    table = rounds_table([[(0, False, True, False)], [(1, True, True, False), (2, False, False, False)]])
    rows = rows_of(table.slice(1))
    assert rows.client.tolist() == [1, 2]
    assert rows.scapegoat.tolist() == [False, True]


def test_lists_that_do_not_match_are_refused() -> None:
    table = rounds_table([[(0, False, True, False)]])
    bent = table.set_column(3, "kept", pa.array([[True, True]], pa.list_(pa.bool_())))
    with pytest.raises(ValueError, match="kept not aligned with clients"):
        rows_of(bent)


def test_rounds_that_were_not_evaluated_are_gaps() -> None:
    table = pa.table({"round": pa.array([0, 1], pa.int32()), "test_accuracy": pa.array([None, 0.5], pa.float64())})
    curves = curves_of(table)
    assert np.isnan(curves.test_accuracy[0])
    assert curves.test_accuracy[1] == 0.5
    assert np.isnan(curves.attack_auc).all()


scores_and_truth = st.integers(2, 60).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-4, 4).map(float), min_size=n, max_size=n), st.lists(st.booleans(), min_size=n, max_size=n)
    )
)


@settings(deadline=None)
@given(scores_and_truth)
def test_the_roc_has_the_area_and_the_low_end_that_others_compute(found: tuple[list[float], list[bool]]) -> None:
    scores, member = np.array(found[0], dtype=np.float32), np.array(found[1])
    roc = roc_of(scores, member)
    if member.all() or not member.any():
        assert roc is None
        return
    assert roc is not None
    assert np.trapezoid(roc.tpr, roc.fpr) == pytest.approx(roc_auc_score(member, scores), abs=1e-5)
    allowed = roc.tpr[roc.fpr <= 0.01 + 1e-7].max()
    # A corner between ties may lie on a straight run that was left out; those at zero false positives never do.
    if roc.others < 100:
        assert allowed == pytest.approx(tpr_at_fpr(scores, member, 0.01).value, abs=1e-6)


def test_a_diverged_model_still_has_a_roc() -> None:
    roc = roc_of(np.array([np.nan, np.inf, -np.inf, 1.0], dtype=np.float32), np.array([True, True, False, False]))
    assert roc is not None
    assert np.isfinite(roc.tpr).all()
    assert (roc.fpr[-1], roc.tpr[-1]) == (1, 1)


def test_a_long_roc_is_thinned_but_keeps_its_low_end_and_its_area() -> None:
    rng = np.random.default_rng(0)
    member = rng.random(40_000) < 0.5
    scores = (rng.normal(size=40_000) + member).astype(np.float32)
    roc = roc_of(scores, member)
    assert roc is not None
    assert len(roc.fpr) <= 600
    assert np.trapezoid(roc.tpr, roc.fpr) == pytest.approx(roc_auc_score(member, scores), abs=2e-3)
    assert (roc.fpr[0], roc.tpr[0], roc.fpr[-1], roc.tpr[-1]) == (0, 0, 1, 1)


def test_the_most_exposed_are_members_that_fewest_others_are_mistaken_for() -> None:
    score = [5.0, 4.0, 3.0, 2.0, 1.0]
    table = pa.table(
        {
            "target": pa.array(range(5), pa.int32()),
            "record": pa.array([50, 40, 30, 20, 10], pa.int64()),
            "label": pa.array([1] * 5, pa.int32()),
            "client": pa.array([0, None, 2, 0, None], pa.int32()),
            "member": pa.array([True, False, True, True, False]),
            "score_final": pa.array(score, pa.float32()),
            "score_mean": pa.array(score, pa.float32()),
            "called_rate": pa.array([1.0, 1.0, 0.5, 0.2, 0.0]),
            "called_best": pa.array([True, True, True, False, False]),
        }
    )
    member = np.array([True, False, True, True, False])
    assert [(t.record, t.mistaken, t.client) for t in exposed_of(table, member)] == [(50, 0, 0), (30, 1, 2), (20, 1, 0)]
    assert [(e.client, e.members, e.called) for e in exposure_of(table, member)] == [(0, 2, 1), (2, 1, 1)]


def test_the_page_counts_scapegoats_as_the_summary_does(page: report.Page) -> None:
    for cell in page.studies[0].matrix.cells.values():
        run = cell.runs[0]
        assert run.rows is not None
        starts, ends = run.rows.start[:-1], run.rows.start[1:]
        hostile = sum(run.rows.malicious[a:b].any() for a, b in zip(starts, ends, strict=True))
        goats = sum(run.rows.scapegoat[a:b].any() for a, b in zip(starts, ends, strict=True))
        assert goats / hostile == pytest.approx(run.aggregation["scapegoat_rate"])


def test_what_is_not_an_angle_is_not_drawn_as_one() -> None:
    table = rounds_table([[(0, False, True, False), (1, False, True, False), (2, True, True, False)]])
    rows = rows_of(table.append_column("mean_angle", pa.array([[-0.4, 1.5, 4.2]], pa.list_(pa.float32()))))
    assert np.isnan(rows.angle).tolist() == [True, False, True]
