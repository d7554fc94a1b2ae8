"""What docs/rules.md says of rules that remember sketches follows from the runs that lie in results/evidence."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import pyarrow.parquet as pq
import pytest
from scipy.stats import t

ROOT = Path(__file__).parents[2]
RULES = ("memory_atm", "reputation_atm")
DATA = {"location30": "Location30", "hospital": "hospital"}
SEEDS = 3

Cell = tuple[str, str, bool]


def figures(data: str) -> dict[Cell, list[tuple[float, float]]]:
    """How often the hostile update was kept and the AUC of each seed, by attack, rule and whether it sketches."""
    found: dict[Cell, list[tuple[float, float]]] = defaultdict(list)
    runs = pq.read_table(ROOT / "results" / "evidence" / f"sketches-{data}.parquet", columns=["spec", "summary"])
    for run in runs.to_pylist():
        spec, summary = json.loads(run["spec"]), json.loads(run["summary"])
        assert spec["data"]["name"] == data
        cell = spec["attack"]["name"], spec["defense"]["name"], spec["defense"].get("sketch") == 4096
        found[cell].append((summary["aggregation"]["malicious_kept_rate"], summary["membership"]["auc"]))
    return found


def in_words(whole: list[float], sketched: list[float], digits: int) -> str:
    """A cell of the table: mean and Student's interval of whole vectors, that of sketches, a star if it is outside."""
    middle = mean(whole)
    half = float(t.ppf(0.975, SEEDS - 1)) * stdev(whole) / math.sqrt(SEEDS)
    low, high, other = max(0.0, middle - half), min(1.0, middle + half), mean(sketched)
    star = "" if low <= other <= high else " *"
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}] → {other:.{digits}f}{star}"


@pytest.mark.parametrize("data", DATA)
def test_the_table_of_rules_with_sketches_is_what_the_runs_say(data: str) -> None:
    text = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    told = dict(re.findall(rf"^\| {DATA[data]}, `(\w+)` \| (.*→.*) \|$", text, re.MULTILINE))
    found = figures(data)
    assert {len(runs) for runs in found.values()} == {SEEDS}
    assert sorted(told) == sorted({attack for attack, _, _ in found})
    for attack, row in told.items():
        cells = []
        for rule in RULES:
            whole, sketched = (zip(*found[attack, rule, short], strict=True) for short in (False, True))
            cells += [in_words(list(w), list(s), n) for w, s, n in zip(whole, sketched, (2, 3), strict=True)]
        assert row.split(" | ") == cells
