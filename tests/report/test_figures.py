from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from scapegoat import report
from scapegoat.errors import InputError
from scapegoat.report.figures import cell_figure, matrix_figure, paper_figure
from scapegoat.report.measures import BY_KEY

Store = tuple[Path, dict[tuple[str, str, int], dict[str, Any]]]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_every_figure_is_written_in_every_format(single: Path, tmp_path: Path) -> None:
    page = report.build(single)
    written = report.write_figures(page, tmp_path / "figures")
    names = {path.stem for path in written}
    assert {"matrix-auc", "matrix-test-accuracy", "cell-passive-fedavg"} <= names
    assert len(written) == 3 * len(names)
    for path in written:
        head = path.read_bytes()[:200]
        assert {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[path.suffix] in head
    with Image.open(tmp_path / "figures" / "matrix-auc.png") as image:
        assert image.width > 300


def test_the_same_page_gives_the_same_files(single: Path, tmp_path: Path) -> None:
    page = report.build(single)
    for run in ("a", "b"):
        report.write_figures(page, tmp_path / run, formats=("svg",))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_the_heat_map_prints_the_stores_numbers(page: report.Page, audit: Store) -> None:
    printed = texts(matrix_figure(page.studies[0], BY_KEY["auc"]))
    for summary in audit[1].values():
        low, high = summary["membership"]["auc_ci"]
        assert f"{summary['membership']['auc']:.2f}\n[{low:.2f}, {high:.2f}]" in printed


def test_curves_are_the_stores(page: report.Page) -> None:
    cell = page.studies[0].matrix.cells["fedpoisonmia", "atm"]
    left, right = cell_figure(cell, cell.runs).axes
    lines = {line.get_label(): line for line in left.lines}
    curves = cell.runs[0].curves
    assert curves is not None
    assert lines["attack accuracy"].get_ydata().tolist() == curves.attack_accuracy.tolist()
    assert right.get_xscale() == right.get_yscale() == "log"


def test_paper_figures_have_a_panel_a_defense_and_leave_gaps() -> None:
    line = report.Line(
        "GA", (1.0, 2.0, 3.0), (report.Estimate(0.6, 0.5, 0.7), None, report.Estimate(0.8)), (0.7, None, None)
    )
    found = report.PaperFigure("f", "x", "y", tuple(report.Panel(name, (line,)) for name in ("A", "B", "C", "D")))
    figure = paper_figure(found)
    visible = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in visible] == ["A", "B", "C", "D"]
    assert visible[0].lines[0].get_xdata().tolist() == [1.0, 3.0]


def test_an_unknown_format_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'bmp': must be one of png, pdf, svg"):
        report.write_figures(report.Page("t"), tmp_path / "none", formats=("bmp",))
    assert not (tmp_path / "none").exists()


def test_drawing_leaves_no_global_state() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    paper_figure(report.PaperFigure("f", "x", "y", ()))
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
