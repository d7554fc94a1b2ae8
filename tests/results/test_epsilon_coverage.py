"""The table of the bounds on epsilon: each holds for mechanisms whose epsilon is known, and comes close enough."""

from __future__ import annotations

from results import epsilon_coverage


def test_every_bound_holds_nearly_always_and_one_for_each_mechanism_comes_within_one():
    rows = epsilon_coverage.measured(trials=40, epsilons=(2.0,), seed=3)
    assert {row.mechanism for row in rows} == set(epsilon_coverage.MECHANISMS)
    for row in rows:
        assert row.held >= 0.85, row  # 95% of 40, less three standard deviations
    for mechanism in epsilon_coverage.MECHANISMS:
        assert min(row.gap for row in rows if row.mechanism == mechanism) < 1.0


def test_the_table_has_a_line_per_bound():
    rows = [epsilon_coverage.Row("Gaussian", 2.0, "AUC, f-DP", 0.96, 1.51)]
    assert epsilon_coverage.table(rows).splitlines()[-1] == "| Gaussian | 2 | AUC, f-DP | 96.0% | 1.51 | 0.49 |"
