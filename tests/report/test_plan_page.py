"""The plan on the page, in a real browser: what is drawn and written is what the plan holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from scapegoat import report
from scapegoat.membership.metrics import Estimate
from scapegoat.report.plan_payload import plan_values
from scapegoat.report.planned import Option, Plan, Stop
from tests.report.test_page import Reader, browser  # noqa: F401

pytestmark = pytest.mark.page


def option(
    label: str, auc: float, test: float, rounds: int = 100, protect: float = 0.0, complete: bool = True
) -> Option:
    stops = tuple(
        Stop(r, 0.5 + (auc - 0.5) * r / rounds, test - 0.001 * (rounds - r)) for r in range(10, rounds + 1, 10)
    )
    return Option(
        rule={"name": label},
        protect=({"name": "weight_decay", "rate": protect, "decoupled": False},) if protect else (),
        rounds=rounds,
        leakage=Estimate(auc, auc - 0.02, auc + 0.02),
        attack="fedpoisonmia",
        watching=Estimate(auc - 0.1),
        test_accuracy=test,
        under_attack=test - 0.1,
        cost=0.7 - test,
        attacks=("passive", "fedpoisonmia"),
        complete=complete,
        runs=(),
        stops=stops,
    )


TODAY = option("fedavg", 0.953, 0.7)
OPTIONS = (
    TODAY,
    option("atm", 0.812, 0.694),
    option("atm", 0.648, 0.676, rounds=60, protect=0.01),
    option("fedavg", 0.903, 0.661, protect=0.005),
    option("fedavg", 0.551, 0.688, protect=0.02, complete=False),
)
PLAN = Plan(
    0.03,
    TODAY,
    OPTIONS[2],
    OPTIONS,
    headline="Do this: aggregate with atm <b>.",
    sentences=("It costs 2.4 points.",),
    do={"Spec": "federation:\n  rounds: 60", "Flower server": "strategy = A(x='</script>')"},
)


@pytest.fixture(scope="module")
def planned(page: report.Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write_html(replace(page, plan=PLAN), tmp_path_factory.mktemp("plan") / "report.html")


@pytest.fixture
def reader(browser: Browser, planned: Path) -> Iterator[Reader]:  # noqa: F811
    opened = Reader(browser, planned)
    yield opened
    opened.page.close()


def test_the_plan_stands_behind_the_verdict_with_what_to_do(reader: Reader) -> None:
    plan = reader.page.locator("#plan")
    assert plan.locator("h2").inner_text() == PLAN.headline
    assert "It costs 2.4 points." in plan.inner_text()
    assert [c.inner_text() for c in plan.locator(".do code").all()] == list(PLAN.do.values())
    assert reader.page.locator("section:has(+ #plan), #plan").first.get_attribute("id") == "verdict"
    assert reader.complaints == []


def test_every_setting_is_a_point_where_its_figures_are(reader: Reader) -> None:
    points = {
        int(p.get_attribute("data-option") or -1): (
            float(p.get_attribute("cx") or 0),
            float(p.get_attribute("cy") or 0),
        )
        for p in reader.page.locator("#plan-chart [data-option]").all()
    }
    assert sorted(points) == list(range(len(OPTIONS)))
    # Both axes are linear: two points give the scale, and all others must lie on it.
    (x0, y0), (x1, y1) = points[0], points[2]
    for index, (x, y) in points.items():
        across = (OPTIONS[index].test_accuracy - TODAY.test_accuracy) / (OPTIONS[2].test_accuracy - TODAY.test_accuracy)
        up = (OPTIONS[index].leakage.value - TODAY.leakage.value) / (OPTIONS[2].leakage.value - TODAY.leakage.value)
        assert abs(x - (x0 + across * (x1 - x0))) < 0.1
        assert abs(y - (y0 + up * (y1 - y0))) < 0.1


def test_today_and_the_recommended_setting_are_marked_and_others_hollow_if_not_all_attacks_ran(reader: Reader) -> None:
    chart = reader.page.locator("#plan-chart")
    assert chart.locator("svg[role=img] .p-today").get_attribute("data-option") == "0"
    assert chart.locator("svg[role=img] .p-chosen").get_attribute("data-option") == "2"
    assert [p.get_attribute("data-option") for p in chart.locator("svg[role=img] .partial").all()] == ["4"]
    assert {"today", "recommended"} <= {t.text_content() for t in chart.locator("text.name").all()}


def test_the_frontier_passes_through_the_best_settings_and_stopping_early_has_a_point_per_round(reader: Reader) -> None:
    values = plan_values(PLAN)
    assert values["frontier"] == [2, 1, 0]
    assert values["curves"] == [0, 2]
    chart = reader.page.locator("#plan-chart svg[role=img]")
    assert (chart.locator("path.p-front").get_attribute("d") or "").count("L") == 2
    rounds = [int(c.get_attribute("data-round") or 0) for c in chart.locator(".p-stop").all()]
    assert rounds == [s.round for i in (0, 2) for s in OPTIONS[i].stops]


def test_what_a_setting_accounts_for_stands_beside_its_name(page: report.Page) -> None:
    noisy = replace(OPTIONS[1], epsilon=12.54)
    plan = replace(PLAN, options=(TODAY, noisy, *OPTIONS[2:]))
    shown = report.to_html(replace(page, plan=plan))
    assert shown.count("ε 12.5 accounted") == 1
    assert "accounted</span></th>" not in report.to_html(replace(page, plan=PLAN))


def test_the_table_has_every_figure(reader: Reader) -> None:
    reader.page.locator("#plan summary", has_text="Every setting").click()
    rows = reader.page.locator("#plan-options tbody tr")
    for row, found in zip(rows.all(), OPTIONS, strict=True):
        cells = row.locator("td").all_inner_texts()
        assert cells[0].startswith(f"{found.leakage.value:.3f} [")
        assert cells[2:6] == [
            f"{v:.3f}" for v in (found.watching.value, found.test_accuracy, found.under_attack, found.cost)
        ]


def test_points_are_named_by_arrow_key_and_mouse(reader: Reader) -> None:
    chart = reader.page.locator("#plan-chart svg[role=img]")
    chart.focus()
    reader.page.keyboard.press("ArrowLeft")
    readout = reader.page.locator("#plan-chart .readout")
    assert readout.inner_text().startswith(f"{TODAY.label}: AUC 0.953")
    chart.locator("[data-option='1']").hover()
    assert readout.inner_text().startswith("atm, 100 rounds: AUC 0.812 (fedpoisonmia), test accuracy 0.694")


def test_a_page_without_a_plan_has_no_such_card(browser: Browser, page: report.Page, tmp_path: Path) -> None:  # noqa: F811
    opened = Reader(browser, report.write_html(page, tmp_path / "report.html"))
    assert opened.page.locator("#plan").count() == 0
    assert opened.complaints == []
    opened.page.close()


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, planned: Path) -> None:  # noqa: F811
    opened = Reader(browser, planned, width=390)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    opened.page.close()
