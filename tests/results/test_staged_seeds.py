"""A rule that the first seed picked is judged by three: what that does to its figure."""

from __future__ import annotations

from results import staged_seeds


def test_the_interval_of_a_rule_that_the_first_seed_picked_holds_as_often_as_it_says():
    rows = {row.way: row for row in staged_seeds.measured(trials=400, spreads=(0.02,), seed=1)}
    picked, alone = rows["picked as an audit does"], rows["picked and judged by one seed"]
    assert picked.held >= 0.92  # 95% of 400, less three standard deviations
    assert -0.02 < picked.off < 0  # flattered, by less than a seed's spread
    assert picked.seeds == 3
    assert alone.held < 0.8  # why one seed is not enough
    assert alone.off < picked.off
    assert abs(rows["named beforehand"].off) < 0.003


def test_the_table_has_a_line_per_way():
    row = staged_seeds.Row(0.02, "named beforehand", 0.96, -0.0001, 3.0)
    assert staged_seeds.table([row]).splitlines()[-1] == "| 0.02 | named beforehand | 96.0% | -0.0001 |"
