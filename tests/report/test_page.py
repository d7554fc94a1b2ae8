"""The page in a real browser: what a reader sees, does and prints."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from scapegoat import report
from tests.report import synthetic

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
pytestmark = pytest.mark.page
Store = tuple[Path, dict[tuple[str, str, int], dict[str, Any]]]


def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium: the page tests drive a real one (Debian: apt-get install chromium)")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


class Reader:
    """A page opened from disk that remembers every complaint and every request."""

    def __init__(self, browser: Browser, path: Path, **options: Any) -> None:
        self.page: Page = browser.new_page(viewport={"width": options.pop("width", 1280), "height": 900}, **options)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("dialog", lambda d: (self.complaints.append(f"dialog {d.message}"), d.dismiss()))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(path.as_uri())

    def cell(self, row: int, column: int, grid: str = "leak") -> Any:
        return self.page.locator(f'table[data-grid={grid}] td[data-row="{row}"][data-column="{column}"]:visible')

    @property
    def title(self) -> str:
        return self.page.locator("#detail-title").inner_text()


@pytest.fixture(scope="module")
def written(audit: Store, page: report.Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write_html(page, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def reader(browser: Browser, written: Path) -> Iterator[Reader]:
    opened = Reader(browser, written)
    yield opened
    opened.page.close()


def test_it_opens_from_disk_without_a_complaint_or_a_request(reader: Reader, written: Path) -> None:
    assert reader.complaints == []
    assert reader.requests == [written.as_uri()]
    assert written.stat().st_size < 6_000_000
    assert not re.search(r'(?:src|href)="(?!#)', written.read_text())  # nothing to fetch, even when asked


def test_the_verdict_comes_first_and_says_what_the_runs_say(reader: Reader, page: report.Page) -> None:
    verdict = page.studies[0].verdict
    section = reader.page.locator("main > *").first
    assert section.locator("h2").first.inner_text() == verdict.headline
    for sentence in (*verdict.sentences, *verdict.caveats):
        assert sentence in section.inner_text()


def test_the_numbers_in_the_matrix_are_the_stores(reader: Reader, audit: Store) -> None:
    names = {"accuracy_best": "Accuracy (best)", "auc": "AUC", "tpr_at_fpr_01": "TPR @ 1% FPR"}
    for measure, button in names.items():
        reader.page.get_by_role("radio", name=button, exact=True).click()
        for i, attack in enumerate(synthetic.ATTACKS):
            for j, defense in enumerate(synthetic.DEFENSES):
                figures = audit[1][attack, defense, 0]["membership"]
                low, high = figures[f"{measure}_ci"]
                text = " ".join(reader.cell(i, j).inner_text().replace("▲", "").split())
                assert text.startswith(f"{figures[measure]:.2f} [{low:.2f}, {high:.2f}]")
    for i, attack in enumerate(synthetic.ATTACKS):
        for j, defense in enumerate(synthetic.DEFENSES):
            expected = audit[1][attack, defense, 0]["test_accuracy"]
            assert reader.cell(i, j, "utility").inner_text().strip() == f"{expected:.2f}"


def test_a_cell_is_chosen_by_mouse(reader: Reader, audit: Store) -> None:
    reader.cell(4, 3).click()
    assert reader.title == "fedpoisonmia against atm"
    assert reader.cell(4, 3).get_attribute("aria-selected") == "true"
    assert reader.cell(4, 3, "utility").get_attribute("aria-selected") == "true"
    summary = audit[1]["fedpoisonmia", "atm", 0]
    figures = reader.page.locator("#figures").inner_text()
    for name in ("accuracy_best", "accuracy_final", "auc", "tpr_at_fpr_01", "precision", "recall"):
        low, high = summary["membership"][f"{name}_ci"]
        assert f"{summary['membership'][name]:.3f} [{low:.3f}, {high:.3f}]" in figures
    assert "not resolvable" in figures
    assert reader.page.locator("#spec-hash").inner_text() == summary["spec_hash"]
    reader.cell(0, 0, "utility").click()
    assert reader.title == "passive against fedavg"
    assert reader.complaints == []


def test_a_cell_is_chosen_by_keyboard_alone(reader: Reader) -> None:
    for _ in range(40):
        reader.page.keyboard.press("Tab")
        if reader.page.evaluate("document.activeElement.matches('table[data-grid=leak] td')"):
            break
    focused = "[+document.activeElement.dataset.row, +document.activeElement.dataset.column]"
    reader.page.keyboard.press("Control+Home")
    assert reader.page.evaluate(focused) == [0, 0]
    reader.page.keyboard.press("ArrowLeft")  # the edge holds
    assert reader.page.evaluate(focused) == [0, 0]
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "End", "ArrowLeft"):
        reader.page.keyboard.press(key)
    assert reader.page.evaluate(focused) == [2, 4]
    assert reader.title != "agrevader against clipped_atm"  # moving is not choosing
    reader.page.keyboard.press("Enter")
    assert reader.title == "agrevader against clipped_atm"
    assert reader.page.locator('table[data-grid=leak] td[tabindex="0"]').count() == 1  # one stop for Tab
    outline = reader.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_the_measure_is_switched_by_keyboard(reader: Reader) -> None:
    reader.page.get_by_role("radio", name="Accuracy (best)").focus()
    reader.page.keyboard.press("ArrowRight")
    reader.page.keyboard.press("ArrowRight")
    assert reader.page.get_by_role("radio", name="AUC", exact=True).get_attribute("aria-checked") == "true"
    assert reader.page.locator(".gridbox.leak h3").inner_text() == "Leakage: AUC"


def test_the_chosen_cell_can_be_linked_to(browser: Browser, written: Path, reader: Reader) -> None:
    reader.cell(1, 2).click()
    link = reader.page.evaluate("location.hash")
    again = browser.new_page()
    again.goto(written.as_uri() + link)
    assert again.locator("#detail-title").inner_text() == "gradient_ascent against trimmed_mean"
    again.goto("about:blank")
    again.goto(written.as_uri() + "#9/9/9")
    assert "against" in again.locator("#detail-title").inner_text()
    again.close()


def test_the_scapegoat_view_tells_who_was_discarded(reader: Reader, page: report.Page) -> None:
    reader.cell(4, 3).click()
    run = page.studies[0].matrix.cells["fedpoisonmia", "atm"].runs[0]
    reader.page.locator("#goat-table summary").click()
    rows = [r.split("\t") for r in reader.page.locator("#goat-table tbody").inner_text().splitlines()]
    assert [[r[0], *map(int, r[1:4])] for r in rows] == [
        [f"{f.client}{' (hostile)' if f.malicious else ''}", f.rounds, f.kept, f.discarded] for f in run.fates
    ]
    assert [int(r[6]) for r in rows if "hostile" not in r[0]] == [f.scapegoat for f in run.fates if not f.malicious]
    assert run.rows is not None
    slider = reader.page.locator("#round")
    slider.focus()
    reader.page.keyboard.press("Home")
    first = slice(run.rows.start[0], run.rows.start[1])
    chips = reader.page.locator(".chips li")
    assert chips.count() == first.stop - first.start
    angles = [float(re.search(r"([\d.]+)°", text)[1]) for text in chips.all_inner_texts()]  # type: ignore[index]
    assert angles == sorted(angles, reverse=True)
    assert angles == pytest.approx(sorted(run.rows.angle[first] * 180 / 3.14159265, reverse=True), abs=0.06)
    assert sum("hostile" in text for text in chips.all_inner_texts()) == run.rows.malicious[first].sum()
    reader.cell(4, 0).click()
    assert "nobody is discarded, so nobody is the scapegoat" in reader.page.locator("#goat-text").inner_text()


def test_charts_speak_to_those_who_do_not_see_them(reader: Reader, page: report.Page) -> None:
    reader.cell(4, 0).click()
    for chart in reader.page.locator("#detail svg[role=img]").all():
        assert chart.get_attribute("aria-label")
    run = page.studies[0].matrix.cells["fedpoisonmia", "fedavg"].runs[0]
    assert run.curves is not None
    chart = reader.page.locator("#leak-chart svg[role=img]")
    chart.focus()
    reader.page.keyboard.press("End")
    assert f"accuracy {run.curves.attack_accuracy[-1]:.3f}" in reader.page.locator("#leak-chart .readout").inner_text()
    reader.page.locator("#leak-chart summary").click()
    reader.page.locator("#leak-chart tbody tr").first.wait_for()
    lines = reader.page.locator("#leak-chart tbody tr").all_inner_texts()
    assert len(lines) == len(run.curves.round)
    assert lines[100].split("\t")[1] == f"{run.curves.attack_accuracy[100]:.3f}"


def test_changing_one_run_changes_the_page(browser: Browser, small: Store, tmp_path: Path) -> None:
    spec = synthetic.make_spec("fedpoisonmia", "atm", rounds=30)
    summary = small[1]["fedpoisonmia", "atm", 0]
    before = report.to_html(report.build(small[0], created="x"))
    summary["membership"].update(accuracy_best=0.4242, accuracy_best_ci=[0.4, 0.45])
    path = small[0] / "runs" / synthetic.spec_hash(spec) / "summary.json"
    path.write_text(json.dumps(summary))
    page = report.build(small[0], created="x")
    assert report.to_html(page) != before
    opened = Reader(browser, report.write_html(page, tmp_path / "changed.html"))
    assert " ".join(opened.cell(1, 1).inner_text().split()) == "0.42 [0.40, 0.45]"
    opened.page.close()


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"


def test_markup_in_names_and_paths_stays_text(browser: Browser, tmp_path: Path) -> None:
    store = tmp_path / "<script>alert(3)<" / "audit"
    for attack in ("passive", HOSTILE):
        for defense in ("fedavg", HOSTILE):
            spec = synthetic.make_spec(attack, defense, rounds=20, data=HOSTILE)
            synthetic.write_run(store, spec)
    bad = synthetic.make_spec("agrevader", "fedavg", rounds=20, data=HOSTILE)
    part = store / "runs" / f"{synthetic.spec_hash(bad)}.part"
    part.mkdir()
    (part / "spec.json").write_text(json.dumps(bad))
    (part / "error.json").write_text(json.dumps({"error": HOSTILE}))
    one = report.PaperCell(report.Estimate(0.5), reason=HOSTILE)
    section = report.Section(
        HOSTILE,
        (HOSTILE,),
        (report.PaperTable(HOSTILE, ((HOSTILE,),), ((HOSTILE,),), ((one,),), (HOSTILE,), HOSTILE),),
        (report.PaperFigure(HOSTILE, HOSTILE, HOSTILE,
                            (report.Panel(HOSTILE, (report.Line(HOSTILE, (1.0,), (report.Estimate(0.5),)),)),)),),
    )  # fmt: skip
    page = report.build(store, title=HOSTILE, command=HOSTILE, sections=[section])
    opened = Reader(browser, report.write_html(page, tmp_path / "hostile.html"))
    assert opened.page.locator("h1").inner_text() == HOSTILE
    assert opened.page.locator(".path").inner_text() == str(store)
    for row in range(3):
        for column in range(2):
            opened.cell(row, column).click()
    assert HOSTILE in opened.title
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script").count() == 3  # theme, data, page
    assert opened.complaints == []
    assert len(opened.requests) == 1
    assert f"failed: {HOSTILE}" in opened.page.locator(".why").all_inner_texts()
    opened.page.close()


def test_a_script_that_got_in_would_not_run(browser: Browser, written: Path, tmp_path: Path) -> None:
    # Even if escaping failed, the page's policy refuses any script but its own.
    tampered = tmp_path / "tampered.html"
    tampered.write_text(written.read_text().replace("<main", "<script>window.ran = true</script><main", 1))
    opened = Reader(browser, tampered)
    assert opened.page.evaluate("window.ran") is None
    assert any("Content Security Policy" in c for c in opened.complaints)
    opened.page.close()


def luminance(colour: str) -> float:
    parts = [int(p) / 255 for p in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_heat_step_can_be_read_in_both_themes(browser: Browser, written: Path, scheme: Any) -> None:
    opened = Reader(browser, written, color_scheme=scheme)
    body = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(body) > 0.5) == (scheme == "light")
    pairs = opened.page.evaluate(
        """() => ["leak", "utility"].flatMap((kind) => [...Array(11).keys()].map((step) => {
          const box = document.querySelector(`.gridbox.${kind}`).appendChild(document.createElement("span"));
          box.className = `h${step}`;
          const style = getComputedStyle(box);
          return [style.backgroundColor, style.color];
        }))"""
    )
    assert len({background for background, _ in pairs}) == 22
    for background, text in pairs:
        light, dark = sorted((luminance(background), luminance(text)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5
    opened.page.get_by_role("button", name=re.compile("theme")).click()
    other = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(other) > 0.5) == (scheme == "dark")
    opened.page.close()


def test_what_rules_cost_is_in_view_however_long_their_names_are(browser: Browser, tmp_path: Path) -> None:
    long = "norm_clipping + nearest_neighbour_mixing + reputation_atm (agreement=1.0, patience=15, probation=10)"
    for attack in ("passive", "fedpoisonmia"):
        for defense in ("fedavg", long, f"bucketing + {long}"):
            synthetic.write_run(tmp_path, synthetic.make_spec(attack, defense, rounds=20))
    opened = Reader(browser, report.write_html(report.build(tmp_path), tmp_path / "report.html"))
    for part in ("thead th", "tbody tr:nth-child(1) td", "tbody tr:nth-child(3) td"):
        cost = opened.page.locator(f".ranges {part}:last-child").bounding_box()
        assert cost is not None
        assert cost["x"] + cost["width"] <= 1280 - 40, part
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 1280
    opened.page.close()


def test_nothing_sticks_out_on_a_phone(browser: Browser, written: Path) -> None:
    opened = Reader(browser, written, width=390)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    opened.cell(3, 5).click()
    assert opened.title == "adaptive against memory_atm"
    assert opened.page.locator("#goat-chart svg[role=img]").bounding_box()["width"] <= 390  # type: ignore[index]
    opened.page.close()


def test_the_chosen_column_is_in_view_on_a_narrow_screen(browser: Browser, written: Path) -> None:
    opened = Reader(browser, written, width=300)
    for choice in ("memory_atm", "fedavg"):
        opened.page.locator("#pick-defense").select_option(label=choice)
        seen = opened.page.evaluate(
            """[...document.querySelectorAll("td[aria-selected=true]")].map((cell) => {
              const [here, frame] = [cell, cell.closest(".scroll")].map((box) => box.getBoundingClientRect());
              const heading = cell.parentElement.firstElementChild.getBoundingClientRect();
              return here.left >= heading.right - 1 && here.right <= frame.right;
            })"""
        )
        assert seen == [True, True]
    assert opened.page.evaluate("scrollY") == 0
    opened.page.close()


def test_it_prints_light_and_whole_whatever_the_screen_shows(browser: Browser, written: Path, tmp_path: Path) -> None:
    opened = Reader(browser, written, color_scheme="dark")
    opened.page.evaluate(
        """() => window.addEventListener("beforeprint", () => {
          const chart = document.querySelector("#leak-chart svg[role=img]");
          window.sheet = { runs: document.querySelector("details.runs").open, width: chart.viewBox.baseVal.width };
        })"""
    )
    pdf = opened.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) <= 14
    assert opened.page.evaluate("window.sheet") == {"runs": True, "width": 350}
    opened.page.emulate_media(media="print")
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert luminance(opened.page.evaluate("getComputedStyle(document.body).color")) < 0.05
    assert opened.page.locator(".switch").first.is_hidden()
    assert opened.complaints == []
    opened.page.close()


def test_seeds_are_pooled_in_the_cell_and_told_apart_below(browser: Browser, seeded: Store, tmp_path: Path) -> None:
    page = report.build(seeded[0])
    opened = Reader(browser, report.write_html(page, tmp_path / "seeds.html"))
    opened.cell(2, 1).click()
    mean = sum(seeded[1]["fedpoisonmia", "atm", s]["membership"]["accuracy_best"] for s in range(3)) / 3
    assert opened.cell(2, 1).inner_text().startswith(f"{mean:.2f}")
    for seed in range(3):
        opened.page.select_option("#pick-seed", label=str(seed))
        expected = seeded[1]["fedpoisonmia", "atm", seed]["spec_hash"]
        assert opened.page.locator("#spec-hash").inner_text() == expected
    assert opened.complaints == []
    opened.page.close()


def test_settings_are_chosen_one_at_a_time(browser: Browser, small: Store, tmp_path: Path) -> None:
    synthetic.write_store(small[0], ("passive", "adaptive"), ("fedavg", "median"), rounds=30, data="location30")
    page = report.build(small[0])
    assert len(page.studies) == 2
    opened = Reader(browser, report.write_html(page, tmp_path / "settings.html"))
    opened.page.get_by_role("button", name="location30").click()
    assert opened.page.locator(".study:visible").count() == 1
    opened.cell(1, 1).click()
    assert opened.title == "adaptive against median"
    opened.page.get_by_role("button", name="hospital").click()
    opened.cell(1, 1).click()
    assert opened.title == "fedpoisonmia against atm"
    assert opened.complaints == []
    opened.page.close()


def test_paper_tables_and_figures_stand_beside_our_numbers(browser: Browser, tmp_path: Path) -> None:
    inside, outside = (report.PaperCell(report.Estimate(0.9, 0.85, 0.95), paper) for paper in (0.91, 0.7))
    failed = report.PaperCell(None, 0.6, "failed: no memory")
    table = report.PaperTable(
        "Table 2", (("Location30", "GA"), ("Location30", "Adaptive")), (("ATM", "IID"), ("ATM", "Non-IID")),
        ((inside, outside), (failed, inside)), ("Data set", "Attack"),
    )  # fmt: skip
    lines = (report.Line("GA", (10.0, 20.0), (report.Estimate(0.8, 0.75, 0.85), None), (0.7, None)),)
    figure = report.PaperFigure("Figure 3", "malicious, %", "attack accuracy", (report.Panel("FedAvg", lines),))
    page = report.Page("Sweep", sections=(report.Section("Main", (), (table,), (figure,)),))
    opened = Reader(browser, report.write_html(page, tmp_path / "sweep.html"))
    rows = opened.page.locator("table.paper tbody tr").all_inner_texts()
    assert [" ".join(r.split()) for r in rows] == [
        "Location30 GA 0.900 [0.850, 0.950] paper 0.910 0.900≠ (paper outside the interval) [0.850, 0.950] paper 0.700",
        "Adaptive failed: no memory paper 0.600 0.900 [0.850, 0.950] paper 0.910",
    ]
    assert opened.page.locator("td.differs").count() == 1
    chart = opened.page.locator("[data-figure] svg[role=img]")
    assert "GA 0.80" in (chart.get_attribute("aria-label") or "")
    opened.page.locator("[data-figure] summary").click()
    opened.page.locator("[data-figure] tbody tr").first.wait_for()
    cells = opened.page.locator("[data-figure] tbody tr").all_inner_texts()
    assert [c.split("\t") for c in cells] == [["10", "0.800 [0.750, 0.850]"], ["20", "–"]]
    assert opened.complaints == []
    opened.page.close()


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(browser: Browser, small: Store, tmp_path: Path) -> None:
    frame = report.to_iframe(report.build(small[0], title="In a notebook"), height=500)
    host = tmp_path / "notebook.html"
    host.write_text(f"<!doctype html><meta charset=utf-8><p>cell</p>{frame}")
    opened = Reader(browser, host)
    inner = opened.page.frame_locator("iframe")
    assert inner.locator("h1").inner_text() == "In a notebook"
    inner.locator('table[data-grid=leak] td[data-row="1"][data-column="0"]').click()
    assert inner.locator("#detail-title").inner_text() == "fedpoisonmia against fedavg"
    assert opened.complaints == []
    opened.page.close()
