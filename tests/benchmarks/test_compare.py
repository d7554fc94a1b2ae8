"""Two source trees are timed against each other, each with its own code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import compare

ROOT = Path(__file__).parents[2]


def test_a_tree_beside_itself_gives_both_times_and_their_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([str(ROOT), "--only", "aggregation:fedavg", "--repeats", "2"]) == 0
    (figures,) = json.loads(capsys.readouterr().out).values()
    assert figures["old_milliseconds"] > 0
    assert figures["new_milliseconds"] > 0
    assert figures["holds"] == (figures["ratio"] <= figures["limit"])


def test_what_is_no_checkout_or_no_case_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([str(tmp_path)]) == 2
    assert "is no checkout" in capsys.readouterr().out
    assert compare.main([str(ROOT), "--only", "round:gpt"]) == 2
    assert "round:mlp_0.3M" in capsys.readouterr().out
