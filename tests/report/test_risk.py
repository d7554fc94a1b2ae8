"""The risk section: what is measured, declared and combined, each from where it says it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, sync_playwright

from scapegoat import aggregation, report
from scapegoat.membership.assessment import score_figures
from scapegoat.membership.exposure import PRIORS
from scapegoat.report.risk import risk_values, risks, sums_only
from scapegoat.report.risk_view import of
from tests.report import synthetic
from tests.report.test_page import FLAGS, Reader, chromium


def store(
    directory: Path,
    gaps: Mapping[tuple[str, str], float],
    targets: int = 400,
    records: int | None = 2500,
    server: float | None = None,
    singled_out: float = 0.0,
) -> report.Page:
    """A store of runs whose members' scores lie so far above those of non-members, as a page.

    `singled_out` is the share of the members that a third score sees plainly, and no other.
    """
    for (attack, defense), gap in gaps.items():
        spec = synthetic.make_spec(attack, defense, rounds=20)
        spec["attack"]["targets"] = targets
        rng = np.random.default_rng([len(attack), len(defense), targets])
        member = np.arange(targets) % 2 == 0
        scores = {"final_margin": gap / 2 * member + rng.normal(size=targets), "trajectory": rng.normal(size=targets)}
        scores["trajectory"] += gap * member
        if singled_out:
            scores["rmia"] = rng.normal(size=targets) + 9 * (member & (rng.random(targets) < singled_out))
        if server is not None:
            scores["update_regression"] = rng.normal(size=targets) + server * member
        figures = {
            name: score_figures(values, member, "server" if name == "update_regression" else "client")
            for name, values in scores.items()
        }
        summary = synthetic.write_run(directory, spec)
        summary["membership"]["scores"] = figures
        if records is not None:
            summary["training_records"] = records
        table = pa.table(
            {
                "target": np.arange(targets),
                "record": np.arange(targets) + 7000,
                "label": np.arange(targets) // 2 % 4,
                "wrong_label": np.zeros(targets, dtype=int),
                "member": member,
                "client": np.arange(targets) // 2 % 3,
                "score_final": scores["final_margin"],
                "score_mean": scores["final_margin"],
                "called_final": member,
                "called_best": member,
                "called_rate": member * 1.0,
                **{f"score_{name}": values for name, values in scores.items() if name != "final_margin"},
            }
        )
        folder = directory / "runs" / synthetic.spec_hash(spec)
        rounds = pq.read_table(folder / "rounds.parquet")
        synthetic.write_files(directory, spec, summary, rounds, table)
    return report.build(directory, created="2026-01-02")


LEAKY = {
    ("passive", "fedavg"): 2.0,
    ("gradient_ascent", "fedavg"): 1.0,
    ("fedpoisonmia", "fedavg"): 4.0,
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> report.Page:
    return store(tmp_path_factory.mktemp("risk"), LEAKY, server=6.0)


def test_measured_counts_are_those_of_the_strongest_score_at_one_percent_false_alarms(page: report.Page) -> None:
    watching, hostile, server = risks(page.studies[0])
    assert [r.seat for r in (watching, hostile, server)] == ["watching", "hostile", "server"]
    assert (watching.score, watching.tried, server.score) == ("trajectory", 2, "update_regression")
    assert hostile.attack == "fedpoisonmia"
    told = page.studies[0].matrix.cells["passive", "fedavg"].runs[0].told
    assert told is not None
    values = told.scores["trajectory"]
    threshold = np.sort(values[~told.member])[::-1][2]
    assert watching.found == (values[told.member] > threshold).sum()
    assert (watching.false, watching.members, watching.others) == (2, 200, 200)
    assert watching.share is not None
    assert watching.alarms is not None
    assert watching.share.low < watching.share.value == watching.found / 200 < watching.share.high
    assert watching.alarms.low < watching.alarms.value == 0.01 < watching.alarms.high


def test_who_is_exposed_is_counted_by_the_score_that_finds_most_and_groups_by_the_largest_auc(tmp_path: Path) -> None:
    page = store(tmp_path, {("passive", "fedavg"): 1.2}, singled_out=0.4)
    (watching,) = risks(page.studies[0])
    assert (watching.score, watching.ranked_by, watching.tried) == ("rmia", "trajectory", 3)
    assert watching.found > 60
    assert risk_values(page.studies[0])["adversaries"][0]["measured"]["groups_by"] == "trajectory"


def test_what_is_combined_follows_from_what_is_measured_and_declared(page: report.Page) -> None:
    watching = risks(page.studies[0])[0]
    assert watching.share is not None
    assert watching.exposed is not None
    tpr, fpr = watching.found / watching.members, watching.false / watching.others
    for prior, call in zip(PRIORS, watching.calls, strict=True):
        expected = tpr * prior / (tpr * prior + fpr * (1 - prior))
        assert call.precision.value == pytest.approx(expected)
        assert call.lift.value == pytest.approx(expected / prior)
        assert call.precision.low < expected < call.precision.high
    assert watching.exposed.value == pytest.approx(2500 * tpr)
    assert (watching.exposed.low, watching.exposed.high) == (2500 * watching.share.low, 2500 * watching.share.high)


def test_the_surest_records_are_members_and_less_sure_the_rarer_members_are(page: report.Page) -> None:
    hostile = risks(page.studies[0])[1]
    assert len(hostile.surest) == 10
    for record in hostile.surest:
        assert (record.record - 7000) % 2 == 0  # a member's row
        assert 1 > record.even > record.by_prior[0] > record.by_prior[1] > record.by_prior[2] > 0


def test_too_few_non_members_are_said_to_be_too_few(tmp_path: Path) -> None:
    found = risks(store(tmp_path, LEAKY, targets=120).studies[0])
    assert all(risk.share is None and not risk.calls for risk in found)
    assert "60 non-members cannot show a false alarm rate of 1%" in found[0].reason


def test_without_a_count_of_records_none_is_claimed_to_be_exposed(tmp_path: Path) -> None:
    found = risks(store(tmp_path, LEAKY, records=None).studies[0])[0]
    assert found.share is not None
    assert found.exposed is None


def test_programs_get_the_three_kinds_apart(page: report.Page) -> None:
    values = risk_values(page.studies[0])
    assert values["declared"] == {"priors": [0.1, 0.01, 0.001], "false_alarms": 0.01}
    assert [a["seat"] for a in values["adversaries"]] == ["watching", "hostile", "server"]
    first = values["adversaries"][0]
    assert set(first["measured"]) & set(first["combined"]) == set()
    assert values["secure_aggregation"] == {"fedavg": True}


@pytest.mark.parametrize(
    ("rule", "compatible"),
    [
        ("fedavg", True), ("dp", True), ("top_k", True), ({"name": "norm_clipping", "norm": 1.0}, True),
        ("norm_clipping", False), ("median", False), ("atm", False), ("reputation_atm", False),
        ([{"name": "norm_clipping", "norm": 1.0}, "dp"], True), (["top_k", "atm"], False),
    ],
)  # fmt: skip
def test_a_rule_goes_with_secure_aggregation_if_a_sum_is_all_it_needs(rule: Any, compatible: bool) -> None:
    assert aggregation.parse(rule).sums_only is compatible


def test_code_that_a_store_names_is_not_imported_to_read_it(
    page: report.Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    study = page.studies[0]
    cell = study.matrix.cells["passive", "fedavg"]
    for recorded in (None, True, False):
        runs = tuple(
            replace(run, spec={"defense": {"name": "trap:Rule"}}, facts=replace(run.facts, sums_only=recorded))
            for run in cell.runs
        )
        matrix = replace(study.matrix, cells={("passive", "trap:Rule"): replace(cell, runs=runs)})
        assert sums_only(replace(study, matrix=matrix)) == {"trap:Rule": recorded}


def test_a_sweep_of_many_settings_has_no_risk_section(page: report.Page) -> None:
    assert of(page.studies * 13) == [None] * 13
    assert of(page.studies)[0] is not None


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.mark.page
def test_the_page_shows_the_section_in_a_browser(browser: Browser, page: report.Page, tmp_path: Path) -> None:
    written = report.write_html(page, tmp_path / "report.html")
    reader = Reader(browser, written)
    section = reader.page.locator("section.risk")
    assert section.is_visible()
    assert section.locator("article h3").all_inner_texts()[0].startswith("Anyone who sees the model")
    found = risks(page.studies[0])[0]
    text = section.inner_text()
    assert f"{found.found} of 200 members are found where 2 of 200 non-members are accused too" in text
    assert "1 in 1,000" in text
    assert "Secure aggregation, under which the server sees the sum alone, works with FedAvg." in text
    for kind in ("measured", "declared", "combined"):
        assert section.locator(f".band.{kind}").count() > 0
    section.locator("summary", has_text="The most exposed records").first.click()
    assert section.locator("details[open] tbody tr").count() == 10
    assert reader.complaints == []
    reader.page.set_viewport_size({"width": 390, "height": 800})
    wide = reader.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    reader.page.close()
