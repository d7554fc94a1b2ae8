from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapegoat import report
from scapegoat.report import limits
from scapegoat.report.tables import tex
from tests.report import synthetic

Store = tuple[Path, dict[tuple[str, str, int], dict[str, Any]]]


def paper_page(label: str = "GA") -> report.Page:
    inside, outside = (report.PaperCell(report.Estimate(0.9, 0.85, 0.95), paper) for paper in (0.91, 0.7))
    failed = report.PaperCell(None, 0.6, "failed")
    table = report.PaperTable(
        "Table 2", (("L30", label), ("L30", "Adaptive")), (("ATM", "IID"), ("ATM", "Non-IID"), ("DP", "IID")),
        ((inside, outside, failed), (failed, inside, inside)), ("Data set", "Attack"), "Accuracy.",
    )  # fmt: skip
    return report.Page("A page", sections=(report.Section("Main", (), (table,)),))


def figure_page() -> report.Page:
    line = report.Line("GA", (8.0, 10.0), (report.Estimate(0.9, 0.85, 0.95), None))
    short = report.Line("Adaptive", (10.0,), (report.Estimate(0.7, 0.6, 0.8),))
    figure = report.PaperFigure(
        "More clients", "clients", "Accuracy", (report.Panel("ATM", (line, short)), report.Panel("DP", (line,)))
    )
    return report.Page("A page", sections=(report.Section("Clients", figures=(figure,)),))


def test_a_figure_is_written_as_a_table_of_its_series_by_x() -> None:
    text = report.to_markdown(figure_page())
    assert "**More clients**" in text
    assert "|  | clients | 8 | 10 |" in text
    assert "| ATM | GA | 0.900 \\[0.850, 0.950\\] | – |" in text
    assert "| ATM | Adaptive | – | 0.700 \\[0.600, 0.800\\] |" in text
    latex = report.to_latex(figure_page())
    assert " & clients & 8 & 10 \\\\" in latex
    assert "ATM & GA & 0.900 [0.850, 0.950] & -- \\\\" in latex
    lines = list(csv.DictReader(io.StringIO(report.to_csv(figure_page()))))
    assert [(line["defense"], line["attack"], line["setting"], line["value"]) for line in lines] == [
        ("ATM", "GA", "clients = 8", "0.9"),
        ("ATM", "GA", "clients = 10", ""),
        ("ATM", "Adaptive", "clients = 10", "0.7"),
        ("DP", "GA", "clients = 8", "0.9"),
        ("DP", "GA", "clients = 10", ""),
    ]


def test_csv_gives_every_figure_with_its_interval_and_its_runs(page: report.Page, audit: Store) -> None:
    lines = list(csv.DictReader(io.StringIO(report.to_csv(page))))
    by_key = {(line["attack"], line["defense"], line["measure"]): line for line in lines}
    for (attack, defense, _), summary in audit[1].items():
        line = by_key[attack, defense, "auc"]
        assert float(line["value"]) == summary["membership"]["auc"]
        assert [float(line["low"]), float(line["high"])] == summary["membership"]["auc_ci"]
        assert (line["spec_hashes"], line["targets"], line["seeds"]) == (summary["spec_hash"], "300", "1")
        rare = by_key[attack, defense, "tpr_at_fpr_001"]
        assert (rare["value"], rare["note"]) == ("", "not resolvable with 150 non-members")


def test_a_rate_that_a_summary_leaves_out_is_called_not_resolvable(tmp_path: Path) -> None:
    spec = synthetic.make_spec("passive", "fedavg", rounds=30)
    summary = synthetic.write_run(tmp_path, spec)
    for rate in ("tpr_at_fpr_01", "tpr_at_fpr_001"):
        summary["membership"] |= {rate: None, f"{rate}_ci": None, f"{rate}_reason": "60 non-members cannot show it"}
    summary["membership"] |= {"targets": 120, "members": 60}
    (next(tmp_path.rglob("summary.json"))).write_text(json.dumps(summary))
    page = report.build(tmp_path)
    lines = {line["measure"]: line for line in csv.DictReader(io.StringIO(report.to_csv(page)))}
    for rate in ("tpr_at_fpr_01", "tpr_at_fpr_001"):
        assert (lines[rate]["value"], lines[rate]["note"]) == ("", "not resolvable with 60 non-members")
    assert "– (not resolvable)" in report.to_markdown(page)
    assert "not resolvable" in report.to_html(page)


def test_csv_keeps_an_empty_cell_and_its_reason(small: Store) -> None:
    shutil.rmtree(small[0] / "runs" / synthetic.spec_hash(synthetic.make_spec("fedpoisonmia", "atm", rounds=30)))
    lines = list(csv.DictReader(io.StringIO(report.to_csv(report.build(small[0])))))
    empty = [line for line in lines if (line["attack"], line["defense"]) == ("fedpoisonmia", "atm")]
    assert [(line["value"], line["note"]) for line in empty] == [("", "no run")]


@pytest.mark.parametrize("start", ["=1+1", "+cmd", "-2", "@x", "\tx"])
def test_no_name_becomes_a_formula_in_a_spreadsheet(start: str) -> None:
    lines = list(csv.reader(io.StringIO(report.to_csv(paper_page(start)))))
    assert not any(value[:1] in "=+-@\t" for line in lines[1:] for value in line if value and not _is_number(value))


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def test_markdown_has_the_verdict_a_table_a_measure_and_the_limits(page: report.Page, audit: Store) -> None:
    text = report.to_markdown(page)
    assert page.studies[0].verdict.hostile.headline.replace("_", "\\_") in text
    figures = audit[1]["fedpoisonmia", "atm", 0]["membership"]
    low, high = figures["auc_ci"]
    row = next(line for line in text.split("### AUC")[1].splitlines() if line.startswith("| fedpoisonmia"))
    assert row.split(" | ")[4] == f"{figures['auc']:.2f} \\[{low:.2f}, {high:.2f}\\]"
    assert "What the figures do not say" in text


@pytest.mark.parametrize(("live", "name"), [(True, "One federation"), (False, "A simulation")])
def test_what_really_ran_is_not_called_a_simulation(tmp_path: Path, live: bool, name: str) -> None:
    spec = synthetic.make_spec("passive", "fedavg", rounds=20)
    synthetic.write_run(tmp_path, {**spec, "live": {"nvflare": "2.9.0", "where": "poc"}} if live else spec)
    page = report.build(tmp_path)
    assert [n for n, _ in limits.of(page) if n in ("A simulation", "One federation")] == [name]


def test_markdown_tables_hold_together_whatever_the_names(tmp_path: Path) -> None:
    for defense in ("fedavg", "a|b\nc<script>`*"):
        synthetic.write_run(tmp_path, synthetic.make_spec("passive", defense, rounds=20))
    text = report.to_markdown(report.build(tmp_path, title="<script>alert(1)</script>|"))
    assert "<script>" not in text
    table = [line for line in text.split("### AUC")[1].splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {4}


def test_paper_tables_show_ours_theirs_and_the_difference() -> None:
    text = report.to_markdown(paper_page())
    assert "| L30 | GA | 0.900 \\[0.850, 0.950\\] (paper 0.910) | 0.900≠ \\[0.850, 0.950\\] (paper 0.700) | – " in text
    assert "outside our 95% interval" in text


def test_latex_has_booktabs_rules_and_headers_that_span() -> None:
    text = report.to_latex(paper_page())
    assert text.count("\\toprule") == text.count("\\midrule") == text.count("\\bottomrule") == 1
    assert "\\multicolumn{2}{c}{ATM} & DP \\\\ \\cmidrule(lr){3-4}\\cmidrule(lr){5-5}" in text
    assert "Data set & Attack & IID & Non-IID & IID \\\\" in text
    body = text.split("\\midrule")[1].split("\\bottomrule")[0].strip().splitlines()
    assert [row.count("&") for row in body] == [4, 4]
    assert body[1].strip().startswith("& Adaptive")  # the data set is named once


@given(st.text())
def test_latex_text_is_escaped(text: str) -> None:
    escaped = tex(text)
    for command in (
        r"\textbackslash{}",
        r"\textasciitilde{}",
        r"\textasciicircum{}",
        r"\textless{}",
        r"\textgreater{}",
    ):
        escaped = escaped.replace(command, "")
    bare = re.sub(r"\\[&%$#_{}]", "", escaped).replace(r"$\neq$", "")
    assert not set("\\&%$#_{}~^<>") & set(bare)


def test_latex_compiles_where_latex_is_installed(page: report.Page, tmp_path: Path) -> None:
    compiler = shutil.which("pdflatex") or shutil.which("tectonic")
    text = report.to_latex(page)
    assert text.count("\\begin{table}") == text.count("\\end{table}") == 5
    assert text.count("{") == text.count("}")
    if compiler is None:
        return  # the structure above is what can be checked without it
    source = tmp_path / "t.tex"
    source.write_text(f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}{text}\\end{{document}}")
    subprocess.run([compiler, source.name], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def test_a_table_with_the_wrong_number_of_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="1 rows of 2"):
        report.PaperTable("t", (("a",),), (("b",), ("c",)), ((report.PaperCell(),),))
    with pytest.raises(ValueError, match="equally many header levels"):
        report.PaperTable("t", (("a",),), (("b", "x"), ("c",)), ((report.PaperCell(), report.PaperCell()),))
    with pytest.raises(ValueError, match="same length"):
        report.Line("l", (1.0, 2.0), (None,))


def test_the_paper_differs_only_outside_a_known_interval() -> None:
    assert report.PaperCell(report.Estimate(0.9, 0.8, 0.95), 0.7).differs
    assert not report.PaperCell(report.Estimate(0.9, 0.8, 0.95), 0.8).differs
    assert not report.PaperCell(report.Estimate(0.9), 0.1).differs
    assert not report.PaperCell(None, 0.1).differs
