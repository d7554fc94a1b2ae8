"""A sweep's plan and runs as tables in the paper's layout and figures like the paper's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scapegoat.experiments import RunStore
from scapegoat.membership.metrics import Estimate
from scapegoat.report.estimate import over_seeds
from scapegoat.report.measures import BY_KEY, RATES, TEST_ACCURACY, from_summary
from scapegoat.report.model import Line, Panel, PaperCell, PaperFigure, PaperTable, Section
from scapegoat.sweeping import saved

# The paper prints attack accuracies only.
_PRINTED = "accuracy_best"
_ROUNDS = "rounds"
PAPER_ROUNDS = 800
"""Rounds behind every printed figure (`sweeping.paper.SETTING`, which needs torch where a report does not)."""

Place = tuple[str, ...]


Look = Callable[[str], Mapping[str, Estimate] | str]


def sections(directory: str | Path) -> tuple[Section, ...]:
    """One section per sweep that was started in this store; none for a store without sweeps.

    A plan that is damaged is a section that says so.
    """
    look = in_store(RunStore(directory))
    damaged: list[Section] = []
    plans = saved(directory, lambda plan, problem: damaged.append(Section(plan, (f"Not shown: {problem}.",))))
    return (*(section(content, look) for content in plans), *damaged)


def in_store(store: RunStore) -> Look:
    """Looks up the figures of a run in a store; the reason where there are none."""

    def look(name: str) -> Mapping[str, Estimate] | str:
        if store.has(name):
            found = store.inspect(name)
            return f"damaged: {found.problem}" if found.problem else _figures(found.summary)
        mark = store.mark(name)
        return f"failed: {mark.failed}" if mark.failed else "under way" if mark.running else "not run"

    return look


def _figures(summary: Mapping[str, Any]) -> Mapping[str, Estimate]:
    """The figures of a run, and its rounds."""
    rounds = summary.get("rounds")
    known = {_ROUNDS: Estimate(float(rounds))} if isinstance(rounds, int) else {}
    return {**from_summary(summary), **known}


def section(content: Mapping[str, Any], look: Look) -> Section:
    """The tables or figures of one saved plan, from the runs that there are by now."""
    cells = _Cells(content, look)
    words = [line for line in (content["about"], content["note"] and f"{content['note']}.", cells.progress()) if line]
    if content["kind"] == "cost":
        return Section(content["title"], tuple(words), tables=(_cost_table(content),))
    if content["kind"] == "table":
        return Section(content["title"], tuple(words), tables=tuple(_table(cells, m) for m in _known(content)))
    figures = [_figure(cells, m, data) for data in cells.points("data") for m in _known(content)]
    return Section(content["title"], tuple(words), figures=tuple(figures))


def _known(content: Mapping[str, Any]) -> list[str]:
    """The plan's metrics; those of a later version cannot be drawn."""
    return [metric for metric in content["metrics"] if metric in BY_KEY]


class _Cells:
    """The cells of a plan by their place, with the figures of their runs."""

    def __init__(self, content: Mapping[str, Any], look: Look) -> None:
        self.content = content
        self._axes = {axis["name"]: axis for axis in content["axes"]}
        self._cells = {tuple(cell["at"][name] for name in self._axes): cell for cell in content["cells"]}
        self._figures: dict[str, Mapping[str, Estimate]] = {}
        self._reasons: dict[str, str] = {}
        for name in dict.fromkeys(name for cell in content["cells"] for name in cell["runs"]):
            found = look(name)
            if isinstance(found, str):
                self._reasons[name] = found
            else:
                self._figures[name] = found

    def points(self, axis: str) -> list[dict[str, Any]]:
        return list(self._axes[axis]["points"])

    def title(self, axis: str) -> str:
        return str(self._axes[axis]["title"])

    def labelled(self, names: Sequence[str]) -> list[tuple[dict[str, str], Place]]:
        """Every combination of points on these axes, with its labels; an axis of nameless points has no label."""
        labelled = {name: any(p["label"] for p in self.points(name)) for name in names}
        found = []
        for points in itertools.product(*(self.points(name) for name in names)):
            at = {name: p["key"] for name, p in zip(names, points, strict=True)}
            found.append((at, tuple(p["label"] or "–" for n, p in zip(names, points, strict=True) if labelled[n])))
        return found

    def cell(self, at: Mapping[str, str], metric: str) -> PaperCell:
        cell = self._cells[tuple(at[name] for name in self._axes)]
        found = [self._figures[n][metric] for n in cell["runs"] if metric in self._figures.get(n, {})]
        paper = cell["paper"] if metric == _PRINTED else None
        if found:
            return PaperCell(over_seeds(found), paper)
        lacking = "not resolvable" if metric in RATES and any(n in self._figures for n in cell["runs"]) else "not run"
        return PaperCell(None, paper, next((self._reasons[n] for n in cell["runs"] if n in self._reasons), lacking))

    @property
    def mark(self) -> str:
        """What a marked cell says: runs shorter than the paper's do not contradict it."""
        rounds = sorted({int(found[_ROUNDS].value) for found in self._figures.values() if _ROUNDS in found})
        if not rounds or rounds == [PAPER_ROUNDS]:
            return PaperTable.mark
        ours = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
        return f"{PaperTable.mark}; ours is after {ours} rounds, the paper's after {PAPER_ROUNDS}"

    def progress(self) -> str:
        """What is missing, in words; nothing if all is there."""
        runs = {name for cell in self.content["cells"] for name in cell["runs"]}
        return f"{len(self._figures)} of {len(runs)} runs are there." if len(self._figures) < len(runs) else ""


def _table(cells: _Cells, metric: str) -> PaperTable:
    layout = cells.content["layout"]
    rows, columns = cells.labelled(layout["rows"]), cells.labelled(layout["columns"])
    label = BY_KEY[metric].label
    return PaperTable(
        title=f"{cells.content['title']}: {label[0].lower()}{label[1:]}",
        rows=tuple(labels for _, labels in rows),
        columns=tuple(labels or (label,) for _, labels in columns),
        cells=tuple(tuple(cells.cell({**row, **column}, metric) for column, _ in columns) for row, _ in rows),
        row_titles=tuple(cells.title(n) for n in layout["rows"] if any(p["label"] for p in cells.points(n))),
        caption=BY_KEY[metric].about + _seeds(cells.content["seeds"], metric),
        mark=cells.mark,
    )


def _figure(cells: _Cells, metric: str, data: Mapping[str, Any]) -> PaperFigure:
    layout = cells.content["layout"]
    axis = layout["x"]
    over = cells.points(axis)
    panels = [p for p in cells.points(layout["panel"]) if layout["panel"] != "data" or p["key"] == data["key"]]

    def line(panel: Mapping[str, Any], point: Mapping[str, Any]) -> Line:
        at = {"data": data["key"], layout["panel"]: panel["key"], layout["line"]: point["key"]}
        found = [cells.cell({**at, axis: p["key"]}, metric) for p in over]
        return Line(point["label"], tuple(float(p["x"]) for p in over), tuple(c.ours for c in found))

    label = BY_KEY[metric].label
    on = f" on {data['label']}" if data["label"] else ""
    return PaperFigure(
        title=f"{cells.content['title']}{on}: {label[0].lower()}{label[1:]}",
        x_label=layout["x_label"],
        y_label=label,
        panels=tuple(
            Panel(p["label"] or label, tuple(line(p, q) for q in cells.points(layout["line"]))) for p in panels
        ),
        caption=BY_KEY[metric].about + _seeds(cells.content["seeds"], metric),
        y_range=(BY_KEY[metric].low, BY_KEY[metric].high),
    )


def _cost_table(content: Mapping[str, Any]) -> PaperTable:
    axes = {axis["name"]: axis for axis in content["axes"]}
    found = {tuple(cell["at"][n] for n in axes): cell.get("seconds") for cell in content["cells"]}
    layout = content["layout"]

    def points(names: Sequence[str]) -> list[tuple[dict[str, str], Place]]:
        product = itertools.product(*(axes[n]["points"] for n in names))
        return [({n: p["key"] for n, p in zip(names, c, strict=True)}, tuple(p["label"] for p in c)) for c in product]

    def cell(at: Mapping[str, str]) -> PaperCell:
        seconds = found[tuple(at[n] for n in axes)]
        if seconds is None:
            return PaperCell(reason="not measured")
        known = seconds["low"] is not None and seconds["high"] is not None
        interval = (seconds["low"], seconds["high"]) if known else ()
        return PaperCell(Estimate(seconds["median"], *interval))

    rows, columns = points(layout["rows"]), points(layout["columns"])
    return PaperTable(
        title=content["title"],
        rows=tuple(labels for _, labels in rows),
        columns=tuple(labels for _, labels in columns),
        cells=tuple(tuple(cell({**row, **column}) for column, _ in columns) for row, _ in rows),
        row_titles=tuple(axes[n]["title"] for n in layout["rows"]),
        caption="Median seconds per call with a 95% interval; all timed in turn on the same rounds.",
        digits=4,
        unit="s",
    )


def _seeds(count: int, metric: str) -> str:
    if count == 1:
        drawn = "test records" if metric == TEST_ACCURACY.key else "targets"
        return f" One seed; intervals over the {drawn}."
    return f" Mean over {count} seeds with Student's interval."
