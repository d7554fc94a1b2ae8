"""What docs/protections.md says of recommended plans is what the committed runs say."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.plan_tables import ATTACKS, PARTITIONS, cell, read, table

DOCS = Path(__file__).parents[2] / "docs" / "protections.md"


@pytest.mark.parametrize("data", ["location30", "hospital"])
def test_the_tables_of_the_docs_are_those_of_the_committed_runs(data: str) -> None:
    text = DOCS.read_text()
    for line in table(read(), data):
        assert line in text


@pytest.mark.parametrize("data", ["location30", "hospital"])
def test_every_attack_has_met_every_plan_with_three_seeds(data: str) -> None:
    for partition in PARTITIONS:
        lines = [line for line in read() if (line["data"], line["partition"]) == (data, partition)]
        alone = [line for line in lines if line["malicious"] == "1"]
        seeds = {attack: {line["seed"] for line in alone if line["attack"].startswith(attack)} for attack in ATTACKS}
        assert {attack for attack, found in seeds.items() if found == {"0", "1", "2"}} >= set(ATTACKS) - {"colluders"}
        assert len({(line["rule"], line["protect"], line["rounds"]) for line in lines}) == 1
        assert min(int(line["targets"]) for line in lines) >= 600


def test_a_cell_is_the_mean_of_its_seeds_beside_the_largest() -> None:
    lines = [
        {"auc": "0.6", "auc_alone": "0.5", "test_accuracy": "0.7"},
        {"auc": "0.7", "auc_alone": "0.6", "test_accuracy": "0.6"},
    ]
    assert cell(lines) == "0.650, 0.700 (0.550); 0.650"
