"""Where a cell is marked as other than the paper's, it is said after how many rounds."""

from __future__ import annotations

from typing import Any

import pytest

from scapegoat import report
from scapegoat.membership.metrics import Estimate
from scapegoat.report.sweeps import PAPER_ROUNDS, section
from scapegoat.sweeping.paper import SETTING


def plan() -> dict[str, Any]:
    axes = [
        {"name": name, "title": name, "points": [{"key": key, "label": key, "x": None}]}
        for name, key in (("attack", "passive"), ("defense", "atm"))
    ]
    cells = [{"at": {"attack": "passive", "defense": "atm"}, "runs": ["a", "b"], "paper": 0.9}]
    layout = {"rows": ["attack"], "columns": ["defense"]}
    words = {"title": "Table 2", "about": "", "note": "", "kind": "table", "seeds": 2, "metrics": ["accuracy_best"]}
    return {**words, "axes": axes, "cells": cells, "layout": layout}


@pytest.mark.parametrize(
    ("rounds", "says"),
    [
        ((20, 20), "outside our 95% interval; ours is after 20 rounds, the paper's after 800."),
        ((20, 40), "outside our 95% interval; ours is after 20 to 40 rounds, the paper's after 800."),
        ((800, 800), "outside our 95% interval."),
    ],
)
def test_marks_say_after_how_many_rounds(rounds: tuple[int, int], says: str) -> None:
    runs = {
        name: {"accuracy_best": Estimate(value, 0.5, 0.6), "rounds": Estimate(float(count))}
        for name, value, count in zip("ab", (0.55, 0.56), rounds, strict=True)
    }
    page = report.Page("A page", sections=(section(plan(), runs.__getitem__),))
    assert says in report.to_markdown(page)
    assert says.replace("%", r"\%") in report.to_latex(page)
    assert r"\caption{Table 2: accuracy, best round. Share of" in report.to_latex(page)


def test_the_papers_rounds_are_those_of_its_setting() -> None:
    assert SETTING["federation.rounds"] == PAPER_ROUNDS
