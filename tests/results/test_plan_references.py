"""What references add to runs of plans: every audited run is a line, and its references are those of an audit."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from results import plan_references
from results.plan_references import audited, described
from scapegoat.experiments import RunStore, parse
from scapegoat.experiments.executors import execute
from scapegoat.experiments.references import FITTING, reference_specs, with_references
from tests.experiments import tiny

COINS = ["evaluation.design=coin", "federation.protect=[{name: weight_decay, rate: 0.02}, {name: cooling}]"]


def test_every_run_with_coins_is_a_line_beside_what_references_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, attacked = (parse(tiny.spec(attack, rounds=4), COINS) for attack in ("passive", "blend"))
    drawn = parse(tiny.spec(rounds=4), ["evaluation.design=even"])
    execute([watched, attacked, drawn], tmp_path / "runs")
    path = tmp_path / "rows.csv"
    command = ["plan_references", str(tmp_path / "runs"), "--references", "3", "--csv", str(path)]
    monkeypatch.setattr(sys, "argv", command)
    plan_references.main()

    store = RunStore(tmp_path / "runs")
    assert len(store.finished()) == 3 + 3, "the references are shared by both attacks, and made for coins alone"
    assert {spec.hash for spec in audited(store)} == {watched.hash, attacked.hash}
    with path.open(newline="") as file:
        lines = {line["attack"]: line for line in csv.DictReader(file)}
    assert set(lines) == {"passive", "blend"}
    for spec in (watched, attacked):
        line = lines[spec.attack.name]
        found = with_references(store, spec.hash, reference_specs(spec, 3))[0]["membership"]
        helped = found["worst_score"]
        alone = store.summary(spec.hash)["membership"]["worst_score"]
        assert (line["strongest"], float(line["auc"])) == (helped["name"], round(helped["auc"], 4))
        assert (line["alone"], float(line["auc_alone"])) == (alone["name"], round(alone["auc"], 4))
        assert int(line["references"]) == (3 if found["references_agreement"] >= FITTING else 0)
        assert line["protect"] == "weight_decay 0.02, cooling"


def test_of_a_folder_with_other_runs_those_of_a_sweep_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = tmp_path / "watched.yaml"
    base = {**tiny.spec(rounds=4), "evaluation": {"design": "coin"}}
    sweep.write_text(json.dumps({"base": base, "grid": {"defense.name": ["median"]}}))
    execute([parse(tiny.spec(rounds=4, defense=rule), COINS[:1]) for rule in ("fedavg", "median")], tmp_path / "runs")
    path = tmp_path / "rows.csv"
    command = ["plan_references", str(tmp_path / "runs"), "--sweep", str(sweep), "--seeds", "1", "--references", "2"]
    monkeypatch.setattr(sys, "argv", [*command, "--csv", str(path)])
    plan_references.main()

    with path.open(newline="") as file:
        assert [line["rule"] for line in csv.DictReader(file)] == ["median"]


def test_a_partition_and_a_copied_rule_are_named() -> None:
    unequal = ["federation.partition={name: label_bias, beta: 0.9}", "attack={name: shadow, targets: 40, mask: 20}"]
    assert described(parse(tiny.spec(defense="median"), unequal)) == ("label_bias 0.9", "", "shadow of reputation_atm")
