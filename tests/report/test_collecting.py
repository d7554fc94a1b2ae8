from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scapegoat import report
from scapegoat.errors import InputError
from scapegoat.report.model import Cell
from scapegoat.report.runs import read_directory
from tests.report import synthetic

Store = tuple[Path, dict[tuple[str, str, int], dict[str, Any]]]


def cell(page: report.Page, attack: str, defense: str) -> Cell:
    return page.studies[0].matrix.cells[attack, defense]


def folder(directory: Path, attack: str, defense: str, **options: Any) -> Path:
    return directory / "runs" / synthetic.spec_hash(synthetic.make_spec(attack, defense, **options))


def test_every_cell_holds_the_figures_of_its_run(page: report.Page, audit: Store) -> None:
    assert len(page.studies) == 1
    for (attack, defense, _), summary in audit[1].items():
        found = cell(page, attack, defense).measures
        for name in ("accuracy_best", "accuracy_final", "auc", "tpr_at_fpr_01", "tpr_at_fpr_001", "precision"):
            assert found[name].value == summary["membership"][name]
            assert [found[name].low, found[name].high] == summary["membership"][f"{name}_ci"]
        assert found["test_accuracy"].value == summary["test_accuracy"]
        assert cell(page, attack, defense).runs[0].hash == summary["spec_hash"]


def test_attacks_and_defenses_come_in_the_order_readers_expect(page: report.Page) -> None:
    assert page.studies[0].matrix.attacks == synthetic.ATTACKS
    assert page.studies[0].matrix.defenses == synthetic.DEFENSES
    assert page.studies[0].matrix.baseline == ("passive", "fedavg")


def test_runs_that_differ_in_the_seed_alone_share_a_cell(seeded: Store) -> None:
    found = cell(report.build(seeded[0]), "fedpoisonmia", "atm")
    assert [run.seed for run in found.runs] == [0, 1, 2]
    values = [seeded[1]["fedpoisonmia", "atm", seed]["membership"]["auc"] for seed in range(3)]
    assert found.measures["auc"].value == pytest.approx(sum(values) / 3)
    assert found.measures["auc"].bounded


def test_a_run_that_differs_in_the_setting_is_another_study(small: Store) -> None:
    synthetic.write_run(small[0], synthetic.make_spec("passive", "fedavg", rounds=30, clients=20))
    studies = report.build(small[0]).studies
    assert sorted(study.title for study in studies) == ["federation.clients 10", "federation.clients 20"]
    assert {study.clients for study in studies} == {10, 20}


def test_settings_that_differ_in_their_protections_are_told_apart_in_words(small: Store) -> None:
    for protect in ([{"name": "weight_decay", "rate": 0.01, "decoupled": False}], "damaged"):
        spec = synthetic.make_spec("passive", "fedavg", rounds=30)
        spec["federation"]["protect"] = protect
        synthetic.write_run(small[0], spec)
    titles = {study.title for study in report.build(small[0]).studies}
    assert {"weight_decay 0.01", "federation.protect damaged"} <= titles


def flower_app(attack: str, rule: str, strategy: str, **config: Any) -> dict[str, Any]:
    run_config = {"num-server-rounds": 30, "strategy": strategy, **config}
    spec = synthetic.make_spec(attack, rule, rounds=30, run_config=run_config)
    return spec | {"defense": {"name": rule, "strategy": strategy}}


def test_the_strategies_of_a_flower_app_are_columns_of_one_matrix_with_a_verdict(tmp_path: Path) -> None:
    strategies = {"fedavg": "FedAvg", "clipped_atm": "ClippedAngularTrimmedMean"}
    for rule, strategy in strategies.items():
        for attack in ("passive", "fedpoisonmia"):
            synthetic.write_run(tmp_path, flower_app(attack, rule, strategy))
    (study,) = report.build(tmp_path).studies
    assert study.matrix.attacks == ("passive", "fedpoisonmia")
    assert study.matrix.defenses == ("fedavg", "clipped_atm")
    assert study.matrix.baseline == ("passive", "fedavg")
    assert study.verdict.recommended == "clipped_atm"
    assert "no run of merely watching" not in study.verdict.text
    synthetic.write_run(tmp_path, flower_app("passive", "fedavg", "FedAvg", lr=0.5))
    assert len(report.build(tmp_path).studies) == 2


def test_two_strategies_of_one_rule_stay_apart(tmp_path: Path) -> None:
    for strategy in ("FedAvg", "Mean"):
        synthetic.write_run(tmp_path, flower_app("passive", "fedavg", strategy))
    (study,) = report.build(tmp_path).studies
    assert study.matrix.defenses == ("fedavg (strategy=FedAvg)", "fedavg (strategy=Mean)")


def test_the_number_of_targets_is_part_of_the_setting(small: Store) -> None:
    spec = synthetic.make_spec("passive", "fedavg", rounds=30)
    spec["attack"]["targets"] = 100
    synthetic.write_run(small[0], spec)
    assert len(report.build(small[0]).studies) == 2


def test_variants_of_a_rule_are_columns_told_apart_by_their_options(small: Store) -> None:
    spec = synthetic.make_spec("passive", "atm", rounds=30)
    spec["defense"]["trim"] = 2
    synthetic.write_run(small[0], spec)
    assert report.build(small[0]).studies[0].matrix.defenses == ("fedavg", "atm (trim=1)", "atm (trim=2)")


def test_a_pair_without_a_run_is_an_empty_cell_that_says_so(small: Store) -> None:
    shutil.rmtree(folder(small[0], "fedpoisonmia", "atm", rounds=30))
    found = cell(report.build(small[0]), "fedpoisonmia", "atm")
    assert (found.measures, found.reason) == ({}, "no run")


def test_a_failed_run_is_an_empty_cell_with_its_reason(small: Store) -> None:
    whole = folder(small[0], "fedpoisonmia", "atm", rounds=30)
    part = whole.with_name(whole.name + ".part")
    part.mkdir()
    shutil.copy(whole / "spec.json", part)
    (part / "error.json").write_text(json.dumps({"error": "loss is\nnot finite", "traceback": "..."}))
    assert cell(report.build(small[0]), "fedpoisonmia", "atm").reason == ""  # it was finished after all
    shutil.rmtree(whole)
    assert cell(report.build(small[0]), "fedpoisonmia", "atm").reason == "failed: loss is not finite"


def test_a_run_under_way_says_how_far_it_is(small: Store) -> None:
    whole = folder(small[0], "passive", "atm", rounds=30)
    part = whole.rename(whole.with_name(whole.name + ".part"))
    (part / "summary.json").unlink()
    (part / "progress.json").write_text(json.dumps({"round": 12, "rounds": 30}))
    assert cell(report.build(small[0]), "passive", "atm").reason == "not finished: round 12 of 30"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("summary.json", b"{", "damaged: summary.json is not JSON (line 1)"),
        ("summary.json", b"[1]", "damaged: summary.json is not a JSON object"),
        ("summary.json", b"\xff\xfe", "damaged: summary.json is not JSON"),
        ("summary.json", b"{}", "damaged: summary.json is of another run"),
    ],
)
def test_damage_is_one_cells_reason_and_nobody_elses(small: Store, name: str, content: bytes, reason: str) -> None:
    (folder(small[0], "fedpoisonmia", "atm", rounds=30) / name).write_bytes(content)
    page = report.build(small[0])
    assert cell(page, "fedpoisonmia", "atm").reason.startswith(reason)
    assert cell(page, "fedpoisonmia", "fedavg").measures
    assert reason[:20] in report.to_html(page)


def test_a_missing_summary_is_named(small: Store) -> None:
    (folder(small[0], "fedpoisonmia", "atm", rounds=30) / "summary.json").unlink()
    assert cell(report.build(small[0]), "fedpoisonmia", "atm").reason == "damaged: summary.json is missing"


def test_damaged_tables_leave_the_figures_standing(small: Store) -> None:
    run = folder(small[0], "fedpoisonmia", "atm", rounds=30)
    (run / "rounds.parquet").write_bytes(b"not parquet")
    pq.write_table(pa.table({"target": [1]}), run / "targets.parquet")
    page = report.build(small[0])
    found = cell(page, "fedpoisonmia", "atm")
    assert found.measures["auc"].value == small[1]["fedpoisonmia", "atm", 0]["membership"]["auc"]
    assert found.runs[0].problem.startswith("details damaged")
    assert found.runs[0].curves is None
    assert "details damaged" in report.to_html(page)


def test_a_run_without_a_spec_cannot_be_placed_and_is_named(small: Store) -> None:
    run = folder(small[0], "fedpoisonmia", "atm", rounds=30)
    (run / "spec.json").unlink()
    page = report.build(small[0])
    assert page.notes[0] == f"Not shown: {run.name}: spec.json is missing."
    assert run.name in report.to_html(page)


def test_temporary_folders_are_not_runs(small: Store) -> None:
    run = folder(small[0], "fedpoisonmia", "atm", rounds=30)
    shutil.copytree(run, run.with_name(run.name + ".0123abcd.tmp"))
    assert len(read_directory(small[0])[0]) == 4


def test_a_folder_without_runs_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no runs"):
        report.build(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        report.build(tmp_path / "nowhere")


def test_a_folder_without_runs_can_still_hold_sections(tmp_path: Path) -> None:
    page = report.build(tmp_path, sections=[report.Section("Costs")])
    assert page.studies == ()
    assert "Costs" in report.to_html(page)


@dataclass
class Result:
    spec: dict[str, Any]
    summary: dict[str, Any]
    rounds: pa.Table
    targets: pa.Table


@dataclass
class Failure:
    name: str
    spec: dict[str, Any]
    reason: str


def test_results_in_memory_make_the_same_page_as_their_store(small: Store) -> None:
    results = []
    for attack, defense, _ in small[1]:
        run = folder(small[0], attack, defense, rounds=30)
        spec, summary = (json.loads((run / name).read_text()) for name in ("spec.json", "summary.json"))
        results.append(
            Result(spec, summary, pq.read_table(run / "rounds.parquet"), pq.read_table(run / "targets.parquet"))
        )
    ours = report.build(results, title="t", command="c", created="d")
    stored = report.build(small[0], title="t", command="c", created="d")
    assert report.to_csv(ours) == report.to_csv(stored)
    assert ours.studies[0].verdict == stored.studies[0].verdict


def test_a_failure_among_results_is_an_empty_cell_of_its_own(small: Store) -> None:
    run = folder(small[0], "passive", "fedavg", rounds=30)
    spec, summary = (json.loads((run / name).read_text()) for name in ("spec.json", "summary.json"))
    good = Result(spec, summary, pq.read_table(run / "rounds.parquet"), pq.read_table(run / "targets.parquet"))
    bad = Failure("abc", synthetic.make_spec("passive", "atm", rounds=30), "2b < n does not hold")
    assert cell(report.build([good, bad]), "passive", "atm").reason == "failed: 2b < n does not hold"
    missing = {("passive", "krum"): "refused"}
    assert cell(report.build([good], missing=missing), "passive", "krum").reason == "refused"


def test_failed_seeds_are_left_out_and_counted(seeded: Store, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(seeded[0], directory)
    (folder(directory, "adaptive", "atm", seed=1, rounds=60) / "summary.json").write_text("{")
    found = cell(report.build(directory), "adaptive", "atm")
    assert found.measures
    assert found.reason.startswith("1 of 3 runs left out (damaged")


def test_beyond_a_number_of_runs_details_are_left_out_and_the_page_says_so(small: Store) -> None:
    page = report.build(small[0], detailed_runs=3)
    detailed = [run.curves is not None for c in page.studies[0].matrix.cells.values() for run in c.runs]
    assert detailed.count(True) == 3
    assert "the first 3" in page.notes[0]
    assert all(c.measures for c in page.studies[0].matrix.cells.values())


def test_versions_that_disagree_are_all_named(small: Store) -> None:
    run = folder(small[0], "passive", "atm", rounds=30)
    summary = json.loads((run / "summary.json").read_text())
    summary["versions"]["torch"] = "2.14.0"
    (run / "summary.json").write_text(json.dumps(summary))
    assert sorted(report.build(small[0]).versions["torch"].split(", ")) == ["2.13.0", "2.14.0"]


def test_reference_federations_are_no_cells_of_a_report_and_are_said_to_be_left_out(small: Store) -> None:
    directory, _ = small
    spec = synthetic.make_spec("passive", "fedavg", rounds=30)
    synthetic.write_run(directory, {**spec, "evaluation": {"design": "coin", "reference": 2}})
    page = report.build(directory)
    assert len(page.studies) == 1
    assert any("1 reference federation," in note for note in page.notes)
