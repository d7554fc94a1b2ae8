"""What the templates print: every number of the page's tables is written here, once, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from scapegoat.membership.metrics import Estimate
from scapegoat.report.measures import LEAKAGE, METRICS, RATES, TEST_ACCURACY, Measure, interval, number, signed
from scapegoat.report.model import Cell, Judgement, PaperTable, Part, RunDetail, Section, Study
from scapegoat.report.payload import starting_cell
from scapegoat.report.verdict import TOLERANCE
from scapegoat.report.wording import attack_name, rule

STEPS = 11
STATUS = {
    "closed": ("closed", "No attack tried gains by more than the tolerance."),
    "undecided": ("undecided", "Neither a leak nor its absence is shown."),
    "open": ("open", "Some attack demonstrably learns more."),
    "unjudged": ("not judged", "Some attack has no run."),
    "invalid": ("not valid", "The runs' own checks say that the figures do not speak of leakage."),
    "undertrained": ("not trained", "The model has not learnt enough to be judged."),
}


@dataclass(frozen=True)
class Value:
    """One figure in one cell."""

    measure: str
    text: str
    interval: str
    step: int
    above: bool


@dataclass(frozen=True)
class GridCell:
    """One cell of a heat map: a figure per measure, or a reason."""

    attack: str
    defense: str
    values: tuple[Value, ...]
    reason: str
    row: int
    column: int
    start: bool


@dataclass(frozen=True)
class Grid:
    """A heat map."""

    name: str
    title: str
    rows: tuple[tuple[str, tuple[GridCell, ...]], ...]
    summary_title: str
    summary: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Range:
    """A rule at a glance: the excess over watching that decided, on a common scale, in percent of the scale's width."""

    judgement: Judgement
    label: str
    status: str
    about: str
    metric: str
    attack: str
    excess: str
    left: float
    width: float
    point: float
    cost: str
    epsilon: str
    epsilon_lower: str
    recommended: bool


@dataclass(frozen=True)
class StudyView:
    """A study as the template reads it."""

    index: int
    study: Study
    grids: tuple[Grid, Grid]
    ranges: tuple[Range, ...]
    zero: float
    tolerance: float
    scale: tuple[tuple[float, str], ...]
    tiles: tuple[tuple[str, str, str, str], ...]
    watching: dict[str, tuple[str, float]]
    runs: tuple[tuple[str, str, RunDetail], ...]
    status: str
    reference: str
    parts: tuple[tuple[str, Part], ...]
    grounds: tuple[str, ...]


def study(study: Study, index: int) -> StudyView:
    """Everything that the template prints of a study."""
    ranges, zero, tolerance, scale = _ranges(study)
    baseline = study.matrix.cells[study.matrix.baseline].measures if study.matrix.baseline else {}
    parts: tuple[tuple[str, Part], ...] = (("What a hostile participant adds", study.verdict.hostile),)
    if study.verdict.watching is not None:
        parts = (("What anyone sees who watches", study.verdict.watching), *parts)
    return StudyView(
        index=index,
        study=study,
        grids=(_grid(study, "leak", LEAKAGE), _grid(study, "utility", (TEST_ACCURACY,))),
        ranges=ranges,
        zero=zero,
        tolerance=tolerance,
        scale=scale,
        tiles=_tiles(study),
        watching={
            m.key: (number(baseline[m.key].value), round(_share(baseline[m.key].value, m) * 100, 1))
            for m in LEAKAGE
            if m.key in baseline
        },
        runs=tuple((c.attack, c.defense, run) for c in study.matrix.cells.values() for run in c.runs),
        status=STATUS[study.verdict.status][0],
        reference="merely watching" if study.verdict.baseline else "guessing",
        parts=parts,
        grounds=study.verdict.sentences[sum(len(part.sentences) for _, part in parts) :],
    )


def _grid(study: Study, name: str, measures: Sequence[Measure]) -> Grid:
    matrix = study.matrix
    leaking = {(a, j.defense, m) for j in study.verdict.judgements for a, m in j.leaking}
    start = starting_cell(study)
    if name == "utility":
        top = max(
            (c.measures["test_accuracy"].value for c in matrix.cells.values() if "test_accuracy" in c.measures),
            default=1,
        )
        measures = [Measure(m.key, m.label, m.short, m.about, low=0.0, high=1.2 * top or 1.0) for m in measures]
    rows = []
    for i, attack in enumerate(matrix.attacks):
        line = []
        for j, defense in enumerate(matrix.defenses):
            cell = matrix.cells[attack, defense]
            values = tuple(
                _value(m, cell.measures[m.key], (attack, defense, m.key) in leaking)
                if m.key in cell.measures
                else Value(m.key, "–", "not resolvable", 0, False)
                for m in measures
                if m.key in cell.measures or (cell.measures and m.key in RATES)
            )
            reason = cell.reason if not values or cell.reason else ""
            line.append(GridCell(attack, defense, values, reason, i, j, (attack, defense) == start))
        rows.append((attack, tuple(line)))
    summary = []
    for defense in matrix.defenses:
        column = [matrix.cells[a, defense] for a in matrix.attacks]
        summary.append(
            tuple(_value(m, found) for m in measures if (found := _extreme(column, m, name == "leak")) is not None)
        )
    return Grid(
        name,
        "Leakage" if name == "leak" else "Test accuracy",
        tuple(rows),
        "worst attack" if name == "leak" else "lowest",
        tuple(summary),
    )


def _extreme(column: Sequence[Cell], measure: Measure, highest: bool) -> Estimate | None:
    found = [cell.measures[measure.key] for cell in column if measure.key in cell.measures]
    if not found:
        return None
    return (max if highest else min)(found, key=lambda e: e.value)


def _value(measure: Measure, estimate: Estimate, above: bool = False) -> Value:
    bounds = interval(estimate)
    return Value(
        measure=measure.key,
        text=number(estimate.value),
        interval=bounds,
        step=round(_share(estimate.value, measure) * (STEPS - 1)),
        above=above,
    )


def _share(value: float, measure: Measure) -> float:
    """Where a value lies on its measure's colour scale, 0 to 1."""
    return min(max((value - measure.low) / (measure.high - measure.low), 0.0), 1.0)


def _ranges(study: Study) -> tuple[tuple[Range, ...], float, float, tuple[tuple[float, str], ...]]:
    """The rules from least to most leaking, on one scale of excess over watching."""
    judged = [(j, j.decided) for j in study.verdict.judgements if j.decided is not None]
    if not judged:
        return (), 0.0, 0.0, ()
    low = min(-0.05, *(decided.drawn[0] for _, decided in judged)) - 0.01
    high = max(0.15, *(decided.drawn[1] for _, decided in judged)) + 0.03

    def place(value: float) -> float:
        return round((value - low) / (high - low) * 100, 2)

    ranges = []
    for j, decided in sorted(judged, key=lambda pair: pair[1].value):
        attack, measure = j.deciding or ("?", "auc")
        left, right = decided.drawn
        points = j.cost.value * 100 if j.cost is not None else None
        ranges.append(
            Range(
                judgement=j,
                label=rule(j.defense),
                status=STATUS[j.status][0],
                about=f"{STATUS[j.status][1]} Decided by {METRICS[measure]}, {attack_name(attack)}.",
                metric=METRICS[measure],
                attack=attack_name(attack),
                excess=signed(decided),
                left=place(left),
                width=round(place(right) - place(left), 2),
                point=place(decided.value),
                cost="–" if points is None else str(max(0, round(points))),
                epsilon="" if j.epsilon is None else number(j.epsilon),
                epsilon_lower="" if j.epsilon_lower is None else number(j.epsilon_lower),
                recommended=j.defense == study.verdict.recommended,
            )
        )
    tenths = 1 if high - low < 0.5 else 2 if high - low < 0.9 else 5
    ticks = [t / 10 for t in range(-10, 11, tenths) if low <= t / 10 <= high]
    return tuple(ranges), place(0.0), place(TOLERANCE), tuple((place(t), f"{t:+.1f}" if t else "0") for t in ticks)


def _tiles(study: Study) -> tuple[tuple[str, str, str, str], ...]:
    """The figures that the verdict turns on: name, figure, interval, what it is.

    Leakage is the AUC of the score that tells most. Accuracy in the best round, which the tables have as the paper has
    it, is an oracle's and yet the smaller danger: watching may look harmless by it and find a third of the members.
    """
    verdict, tiles = study.verdict, []
    plain = study.matrix.baseline[1] if study.matrix.baseline else "fedavg"
    before, chosen = verdict.of(plain), verdict.of(verdict.least or "")
    if before is not None and "auc" in before.worst and before.worst_attack is not None:
        attack, auc = before.worst["auc"]
        tiles.append((f"{rule(plain)}, worst attack", number(auc.value), interval(auc), _told(attack_name(attack))))
    if "auc" in verdict.baseline:
        base = verdict.baseline["auc"]
        tiles.append(("Merely watching", number(base.value), interval(base), _told("a curious client")))
    if chosen is not None and chosen.defense != plain and "auc" in chosen.worst:
        attack, auc = chosen.worst["auc"]
        name = rule(chosen.defense)
        tiles.append((f"{name}, worst attack", number(auc.value), interval(auc), _told(attack_name(attack))))
        if chosen.cost is not None:
            points = round(chosen.cost.value * 100)
            unit = f"point{'' if points == 1 else 's'} of test accuracy"
            tiles.append((f"Cost of {name}", str(max(points, 0)), "", unit))
    return tuple(tiles)


def _told(whom: str) -> str:
    """What a tile's figure is, and by whom."""
    return f"AUC of {whom}; guessing has 0.50"


@dataclass(frozen=True)
class TableView:
    """A paper table with its headers merged: levels of (text, span)."""

    table: PaperTable
    header: tuple[tuple[tuple[str, int], ...], ...]
    body: tuple[tuple[tuple[tuple[str, int], ...], int], ...]
    marked: bool


def sections(found: Sequence[Section]) -> list[tuple[Section, list[TableView], int]]:
    """Each section with its tables laid out and the number of the first of its figures."""
    views, first = [], 0
    for section in found:
        views.append((section, [table_view(t) for t in section.tables], first))
        first += len(section.figures)
    return views


def table_view(table: PaperTable) -> TableView:
    """Headers as the paper prints them: equal neighbours share one."""
    depth = len(table.columns[0]) if table.columns else 0
    header = tuple(
        tuple((key[-1], len(list(same))) for key, same in groupby(column[: level + 1] for column in table.columns))
        for level in range(depth)
    )
    body = []
    for index, row in enumerate(table.rows):
        heads = []
        for level, text in enumerate(row):
            prefix = row[: level + 1]
            if index and table.rows[index - 1][: level + 1] == prefix:
                continue
            span = 1
            while index + span < len(table.rows) and table.rows[index + span][: level + 1] == prefix:
                span += 1
            heads.append((text, span))
        body.append((tuple(heads), index))
    return TableView(table, header, tuple(body), any(cell.differs for row in table.cells for cell in row))
