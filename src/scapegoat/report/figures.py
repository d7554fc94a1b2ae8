"""Figures for papers: PNG, PDF and SVG by matplotlib, from the same page that the HTML is made from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scapegoat.errors import InputError
from scapegoat.files import whole
from scapegoat.report.measures import LEAKAGE, TEST_ACCURACY, Measure, number
from scapegoat.report.model import Cell, Page, PaperFigure, RunDetail, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
# Okabe and Ito's colours, told apart with any colour vision; markers tell them apart in print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa5f92", "#b07c00", "#56a0d3", "#555555")
MARKERS = ("o", "s", "^", "D", "v", "P", "x")
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "scapegoat",
    "savefig.bbox": "tight",
}


def write_figures(page: Page, directory: str | Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw every figure of the page.

    Parameters
    ----------
    page: what `build` made.
    directory: where the files go.
    formats: of `pdf`, `svg` and `png`.

    Returns
    -------
    The files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_figures(Page("An audit"), folder, formats=["svg"])
    []
    """
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise InputError(f"figure format {unknown[0]!r}: must be one of {', '.join(FORMATS)}")
    import matplotlib as mpl

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(_STYLE):
        for name, figure in _all(page):
            for form in formats:
                path = folder / f"{name}.{form}"
                with whole(path) as draft:
                    figure.savefig(draft, format=form, dpi=200, metadata=_undated(form))
                written.append(path)
    return written


def _all(page: Page) -> Iterator[tuple[str, Figure]]:
    for section in page.sections:
        for index, figure in enumerate(section.figures):
            yield _slug(f"{section.title} {index + 1}"), paper_figure(figure)
    for index, study in enumerate(page.studies):
        prefix = f"setting-{index + 1}-" if len(page.studies) > 1 else ""
        for measure in (*LEAKAGE, TEST_ACCURACY):
            yield f"{prefix}matrix-{_slug(measure.key)}", matrix_figure(study, measure)
        for cell in study.matrix.cells.values():
            runs = [run for run in cell.runs if run.measures and run.curves is not None]
            if runs:
                yield f"{prefix}cell-{_slug(cell.attack)}-{_slug(cell.defense)}", cell_figure(cell, runs)


def matrix_figure(study: Study, measure: Measure) -> Figure:
    """Attack by defense as a heat map, figure and interval in each cell."""
    matrix = study.matrix
    values = np.full((len(matrix.attacks), len(matrix.defenses)), np.nan)
    for i, attack in enumerate(matrix.attacks):
        for j, defense in enumerate(matrix.defenses):
            estimate = matrix.cells[attack, defense].measures.get(measure.key)
            values[i, j] = estimate.value if estimate is not None else np.nan
    figure = _new(0.95 * len(matrix.defenses) + 1.4, 0.5 * len(matrix.attacks) + 0.8)
    axes = figure.axes[0]
    leak = measure is not TEST_ACCURACY
    top = measure.high if leak else max(float(np.nanmax(values, initial=0.0)), 1e-9)
    axes.imshow(values, cmap="Oranges" if leak else "Blues", vmin=measure.low, vmax=top, aspect="auto")
    for i, attack in enumerate(matrix.attacks):
        for j, defense in enumerate(matrix.defenses):
            estimate = matrix.cells[attack, defense].measures.get(measure.key)
            shade = (values[i, j] - measure.low) / (top - measure.low)
            text = "–" if estimate is None else number(estimate.value)
            if estimate is not None and estimate.bounded:
                text += f"\n[{number(estimate.low)}, {number(estimate.high)}]"
            axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color="white" if shade > 0.75 else "black")
    axes.set_xticks(range(len(matrix.defenses)), matrix.defenses, rotation=20, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(matrix.attacks)), matrix.attacks)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(f"{measure.label}{': ' + study.title if study.title else ''}", loc="left")
    return figure


def cell_figure(cell: Cell, runs: Sequence[RunDetail]) -> Figure:
    """Curves by round and the ROC on log axes, a thin line per seed."""
    figure = _new(6.6, 2.4, columns=2)
    left, right = figure.axes
    for index, run in enumerate(runs):
        curves = run.curves
        if curves is None:
            continue
        names = (("attack accuracy", curves.attack_accuracy, 1), ("test accuracy", curves.test_accuracy, 0))
        for name, series, colour in names:
            there = np.isfinite(series)
            label = name if index == 0 else None
            left.plot(curves.round[there], series[there], color=COLOURS[colour], linewidth=1.1, label=label)
        if run.roc is not None:
            right.plot(np.maximum(run.roc.fpr, 1e-3), np.maximum(run.roc.tpr, 1e-3), color=COLOURS[1], linewidth=1.1)
    left.axhline(0.5, color="#888888", linewidth=0.7, linestyle=":")
    left.set(xlabel="round", ylim=(0, 1.02), title=f"{cell.attack} against {cell.defense}")
    left.legend(fontsize=7, loc="lower right")
    right.plot([1e-3, 1], [1e-3, 1], color="#888888", linewidth=0.7, linestyle=":")
    right.set(xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-2, 1.05), title="ROC, final model")
    right.set(xlabel="false positive rate", ylabel="true positive rate")
    for fpr, key in ((0.01, "tpr_at_fpr_01"), (0.001, "tpr_at_fpr_001")):
        if key in cell.measures:
            right.plot(fpr, max(cell.measures[key].value, 1e-2), "o", color=COLOURS[1], markersize=4, clip_on=False)
    return figure


def paper_figure(found: PaperFigure) -> Figure:
    """Panels side by side as in the paper, error bars from the intervals, the paper's points hollow."""
    columns = max(1, min(3, len(found.panels)))
    rows = max(1, -(-len(found.panels) // columns))
    figure = _new(2.3 * columns + 0.3, 1.9 * rows + 0.4, rows, columns, same_y=True)
    labels = list(dict.fromkeys(line.label for panel in found.panels for line in panel.lines))
    for axes, panel in zip(figure.axes, found.panels, strict=False):
        for line in panel.lines:
            k = labels.index(line.label) % len(COLOURS)
            there = [(x, e) for x, e in zip(line.x, line.y, strict=True) if e is not None]
            below = [e.value - e.drawn[0] for _, e in there]
            above = [e.drawn[1] - e.value for _, e in there]
            axes.errorbar(
                [x for x, _ in there],
                [e.value for _, e in there],
                yerr=np.clip([below, above], 0, None),
                color=COLOURS[k],
                marker=MARKERS[k],
                markersize=3.2,
                linewidth=1.1,
                elinewidth=0.7,
                capsize=1.8,
                label=line.label,
            )
            theirs = [(x, p) for x, p in zip(line.x, line.paper, strict=False) if p is not None]
            if theirs:
                axes.plot(*zip(*theirs, strict=True), MARKERS[k], color=COLOURS[k], markersize=4.5, fillstyle="none")
        axes.set(title=panel.title, xlabel=found.x_label)
        if found.y_range is not None:
            axes.set_ylim(*found.y_range)
    for axes in figure.axes[::columns]:
        axes.set_ylabel(found.y_label)
    for axes in figure.axes[len(found.panels) :]:
        axes.set_visible(False)
    if labels and figure.axes:
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=min(5, len(names)), fontsize=7)
    return figure


def _new(width: float, height: float, rows: int = 1, columns: int = 1, same_y: bool = False) -> Figure:
    """A figure without pyplot: nothing global, no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.subplots(rows, columns, sharey=rows * columns > 1 and same_y)
    return figure


def _undated(form: str) -> dict[str, Any]:
    """Metadata without a date, so that the same page gives the same file."""
    undated: dict[str, dict[str, Any]] = {
        "png": {"Software": "scapegoat"},
        "pdf": {"CreationDate": None},
        "svg": {"Date": None},
    }
    return undated[form]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80] or "figure"
