"""Two source trees are timed against each other, each with its own code."""

from __future__ import annotations

import json
import subprocess
import sys
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


def test_every_rule_that_is_timed_can_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "RULES", dict.fromkeys(compare.RULES, (6, 50)))
    for name in compare.RULES:
        assert compare._aggregation(name)().update.shape == (50,)


def test_what_is_no_checkout_or_no_case_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([str(tmp_path)]) == 2
    assert "is no checkout" in capsys.readouterr().out
    assert compare.main([str(ROOT), "--only", "round:gpt"]) == 2
    assert "round:mlp_0.3M" in capsys.readouterr().out


SERVED = """
import io, sys
from benchmarks import compare
from scapegoat.heap import keep_pages
sys.stdin = io.StringIO()
compare.serve("aggregation:fedavg")
print(keep_pages.cache_info().currsize)
"""


def test_a_tree_keeps_freed_memory_as_its_runs_do() -> None:
    done = subprocess.run([sys.executable, "-c", SERVED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_crafting_against_convolutions_is_among_what_is_timed() -> None:
    assert callable(compare._attack("resnet20"))
    assert set(compare.LENGTHY) <= {f"round:{name}" for name in compare.ROUNDS} | {
        f"attack:{name}" for name in compare.CRAFTS
    }
