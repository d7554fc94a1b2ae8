"""The picture of protections beside early stopping: its points are those of the runs, and what it says is so."""

from __future__ import annotations

from pathlib import Path

import pytest

import scapegoat as sg
from results import frontier
from results.frontier import Point
from scapegoat.experiments import parse
from tests.experiments import tiny

CURVE = [Point("toy", "passive", "fedavg", 10 * i, 0.5 + 0.1 * i, test, 1) for i, test in enumerate((0.2, 0.6, 0.5), 1)]


def test_every_tenth_round_of_a_run_is_a_point_and_seeds_are_averaged(tmp_path: Path) -> None:
    spec = parse(tiny.spec(), ["federation.rounds=10", "evaluation.every=10"])
    runs = [sg.run(parse(spec, [f"seed={seed}"]), store=tmp_path) for seed in (0, 1)]
    (point,) = frontier.collect([str(tmp_path)])
    assert (point.round, point.seeds) == (10, 2)
    expected = sum(run.summary["membership"]["auc"] for run in runs) / 2
    assert point.auc == pytest.approx(expected, abs=1e-4)
    frontier.write([point], tmp_path / "points.csv")
    assert frontier.read(tmp_path / "points.csv") == [point]


def test_the_least_leakage_at_an_accuracy_is_that_of_the_best_round() -> None:
    assert frontier.at_accuracy(CURVE, 0.5) == 0.7
    assert frontier.at_accuracy(CURVE, 0.7) is None


def test_the_picture_is_drawn_without_a_screen_and_alike_each_time(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        frontier.draw(CURVE, tmp_path / name)
    assert "plain early stopping" in (tmp_path / "one.svg").read_text()
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
