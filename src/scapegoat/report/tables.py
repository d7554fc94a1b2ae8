"""The page's tables for papers and other programs: Markdown, LaTeX (booktabs) and CSV. A figure becomes a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import groupby

from scapegoat.membership.guards import resolvable
from scapegoat.membership.metrics import Estimate
from scapegoat.report import limits
from scapegoat.report.measures import ALL, LEAKAGE, RATES, TEST_ACCURACY, Measure, interval, number, written
from scapegoat.report.model import Cell, Line, Page, PaperCell, PaperFigure, PaperTable, RunDetail, Section, Study

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "≠": r"$\neq$",
    "–": "--",
}


# --- Markdown ---------------------------------------------------------------------------------------------------------


def to_markdown(page: Page) -> str:
    """Verdict, matrices and paper tables as GitHub-flavoured Markdown.

    `page` is what `build` made.

    Returns
    -------
    The text.

    Examples
    --------
    >>> to_markdown(Page("An audit"))
    '# An audit\\n'
    """
    parts = [f"# {_md(page.title)}"]
    for section in page.sections:
        parts.append(f"## {_md(section.title)}")
        parts += [_md(text) for text in section.text]
        for table in _all_tables(section):
            parts += [f"**{_md(table.title)}** {_md(table.caption)}".rstrip(), _markdown_paper(table)]
    for study in page.studies:
        if study.title:
            parts.append(f"## {_md(study.title)}")
        parts += [f"**{_md(study.verdict.headline)}**", _md(" ".join(study.verdict.sentences))]
        parts.append("\n".join(f"- {_md(note)}" for note in study.verdict.caveats))
        for measure in (*LEAKAGE, TEST_ACCURACY):
            rows = [
                [_md(a), *(_md(_matrix_text(study.matrix.cells[a, d], measure)) for d in study.matrix.defenses)]
                for a in study.matrix.attacks
            ]
            head = ["attack", *map(_md, study.matrix.defenses)]
            parts += [f"### {measure.label}", _markdown_table(head, rows)]
    if page.notes:
        parts += ["### Notes", "\n".join(f"- {_md(note)}" for note in page.notes)]
    if page.studies:
        parts.append("### What the figures do not say")
        parts.append("\n".join(f"- **{_md(name)}.** {_md(text)}" for name, text in limits.of(page)))
    if page.command:
        parts.append(f"Made by `{page.command.replace('`', '')}`")
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_paper(table: PaperTable) -> str:
    head = [
        *(table.row_titles or [""] * (len(table.rows[0]) if table.rows else 0)),
        *(" / ".join(c) for c in table.columns),
    ]
    rows = [
        [*row, *(_paper_text(cell, table.digits) for cell in cells)]
        for row, cells in zip(table.rows, table.cells, strict=True)
    ]
    text = _markdown_table([_md(h) for h in head], [[_md(value) for value in row] for row in rows])
    return text + (f"\n\n≠ {table.mark}." if _marked(table) else "")


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _md(text: str) -> str:
    """Text that stays text in Markdown."""
    flat = " ".join(text.split())
    for char in "\\`*_|<>[]":
        flat = (
            flat.replace(char, f"\\{char}")
            if char not in "<>"
            else flat.replace(char, {"<": "&lt;", ">": "&gt;"}[char])
        )
    return flat


# --- LaTeX ------------------------------------------------------------------------------------------------------------


def to_latex(page: Page) -> str:
    """Every table as a `table` environment for `\\usepackage{booktabs}`.

    `page` is what `build` made.

    Returns
    -------
    The text.

    Examples
    --------
    >>> to_latex(Page("An audit")).startswith("%")
    True
    """
    tables = ["% needs \\usepackage{booktabs}"]
    tables += [_latex_paper(table) for section in page.sections for table in _all_tables(section)]
    for study in page.studies:
        tables += [_latex_matrix(study, measure) for measure in (*LEAKAGE, TEST_ACCURACY)]
    return "\n\n".join(tables) + "\n"


def _latex_matrix(study: Study, measure: Measure) -> str:
    matrix = study.matrix
    rows = [
        [tex(a), *(tex(_matrix_text(matrix.cells[a, d], measure)) for d in matrix.defenses)] for a in matrix.attacks
    ]
    where = f", {study.title}" if study.title else ""
    caption = f"{measure.label}{where}. In brackets: 95% interval."
    return _latex_table(caption, [" & ".join(["Attack", *map(tex, matrix.defenses)])], rows, 1, len(matrix.defenses))


def _latex_paper(table: PaperTable) -> str:
    levels = len(table.rows[0]) if table.rows else 1
    depth = len(table.columns[0]) if table.columns else 0
    heads = []
    for level in range(depth):
        names = [tex(t) for t in table.row_titles] if level == depth - 1 and table.row_titles else [""] * levels
        spans = [(key[-1], len(list(same))) for key, same in groupby(c[: level + 1] for c in table.columns)]
        heads.append(
            " & ".join([*names, *(tex(t) if n == 1 else rf"\multicolumn{{{n}}}{{c}}{{{tex(t)}}}" for t, n in spans)])
        )
        if level < depth - 1:
            start, rules = levels + 1, []
            for _, n in spans:
                rules.append(rf"\cmidrule(lr){{{start}-{start + n - 1}}}")
                start += n
            heads[-1] += r" \\ " + "".join(rules)
    rows: list[list[str]] = []
    previous: tuple[str, ...] = ()
    for row, cells in zip(table.rows, table.cells, strict=True):
        shown = [tex(t) if row[: i + 1] != previous[: i + 1] else "" for i, t in enumerate(row)]
        rows.append([*shown, *(tex(_paper_text(cell, table.digits)) for cell in cells)])
        previous = row
    note = rf" $\neq$: {tex(table.mark)}." if _marked(table) else ""
    return _latex_table(f"{table.title}. {table.caption}".strip(), heads, rows, levels, len(table.columns), note)


def _latex_table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], labels: int, columns: int, note: str = ""
) -> str:
    body = [
        r"\begin{table}[t]",
        r"  \centering",
        rf"  \caption{{{tex(caption)}{note}}}",
        rf"  \begin{{tabular}}{{{'l' * labels}{'c' * columns}}}",
        r"    \toprule",
        *(f"    {head}" + ("" if head.endswith("}") and r"\cmidrule" in head else r" \\") for head in heads),
        r"    \midrule",
        *(f"    {' & '.join(row)} \\\\" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(body)


def tex(text: str) -> str:
    """Text that stays text in LaTeX."""
    return "".join(_LATEX.get(char, char) for char in " ".join(text.split()))


# --- CSV --------------------------------------------------------------------------------------------------------------

_COLUMNS = (
    "table", "setting", "attack", "defense", "measure", "value", "low", "high",
    "paper", "seeds", "targets", "spec_hashes", "note",
)  # fmt: skip


def to_csv(page: Page) -> str:
    """Every figure on a line of its own, with its interval and the runs it comes from.

    `page` is what `build` made.

    Returns
    -------
    The text; its first line names the columns.

    Examples
    --------
    >>> to_csv(Page("An audit")).split(",")[:3]
    ['table', 'setting', 'attack']
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for section in page.sections:
        for table in section.tables:
            for row, cells in zip(table.rows, table.cells, strict=True):
                for column, cell in zip(table.columns, cells, strict=True):
                    line = _csv_estimate(cell)
                    writer.writerow(
                        _safe({**line, "table": table.title, "attack": " / ".join(row), "defense": " / ".join(column)})
                    )
        for figure in section.figures:
            writer.writerows(_safe(line) for line in _csv_figure(figure))
    for study in page.studies:
        for found in study.matrix.cells.values():
            writer.writerows(_safe(line) for line in _csv_cell(study, found))
    return out.getvalue()


def _csv_cell(study: Study, cell: Cell) -> list[dict[str, object]]:
    runs = [run for run in cell.runs if run.measures]
    common = {
        "table": "matrix",
        "setting": study.title,
        "attack": cell.attack,
        "defense": cell.defense,
        "seeds": len(runs),
        "targets": min((run.targets for run in runs), default=""),
        "spec_hashes": " ".join(run.hash for run in runs),
        "note": cell.reason,
    }
    lines: list[dict[str, object]] = []
    for measure in ALL:
        estimate, unresolved = cell.measures.get(measure.key), _unresolved(measure, runs)
        if unresolved or estimate is not None:
            bounds = {} if estimate is None else _csv_bounds(estimate)
            lines.append({**common, "measure": measure.key, **bounds, **unresolved})
    for name in ("epsilon", "epsilon_lower", "epsilon_reachable", "epsilon_ceiling"):
        found = [value for run in runs if (value := getattr(run.facts, name)) is not None]
        if found:
            lines.append({**common, "measure": name, "value": max(found)})
    return lines or [common]


def _unresolved(measure: Measure, runs: Sequence[RunDetail]) -> dict[str, object]:
    """In place of a rate that the non-members of a cell cannot show: why it is not there."""
    others = min((run.targets - run.members for run in runs if run.targets), default=0)
    if others < 1 or resolvable(RATES.get(measure.key, 1.0), others):
        return {}
    return {"value": None, "low": None, "high": None, "note": f"not resolvable with {others} non-members"}


def _csv_figure(figure: PaperFigure) -> list[dict[str, object]]:
    return [
        {
            **_csv_estimate(cell),
            "table": figure.title,
            "setting": f"{figure.x_label} = {x:g}",
            "attack": line.label,
            "defense": panel.title,
        }
        for panel in figure.panels
        for line in panel.lines
        for x, cell in _points(line).items()
    ]


def _csv_estimate(cell: PaperCell) -> dict[str, object]:
    ours = cell.ours
    note = cell.reason or ("paper outside the interval" if cell.differs else "")
    if ours is None:
        return {"paper": cell.paper, "note": note}
    return {**_csv_bounds(ours), "paper": cell.paper, "note": note}


def _csv_bounds(estimate: Estimate) -> dict[str, object]:
    low, high = (estimate.low, estimate.high) if estimate.bounded else (None, None)
    return {"value": estimate.value, "low": low, "high": high}


def _safe(line: dict[str, object]) -> dict[str, object]:
    """Text that a spreadsheet would run as a formula is kept text."""
    return {
        key: f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
        for key, value in line.items()
    }


# --- Shared -----------------------------------------------------------------------------------------------------------


def _all_tables(section: Section) -> list[PaperTable]:
    """The section's tables, then its figures as tables."""
    return [*section.tables, *(_as_table(figure) for figure in section.figures)]


def _as_table(figure: PaperFigure) -> PaperTable:
    """The numbers that a figure draws: a row per line, a column an x."""
    lines = [(panel.title, line) for panel in figure.panels for line in panel.lines]
    xs = sorted({x for _, line in lines for x in line.x})
    return PaperTable(
        title=figure.title,
        rows=tuple((title, line.label) for title, line in lines),
        columns=tuple((f"{x:g}",) for x in xs),
        cells=tuple(tuple(_points(line).get(x, PaperCell()) for x in xs) for _, line in lines),
        row_titles=("", figure.x_label),
        caption=figure.caption,
    )


def _points(line: Line) -> dict[float, PaperCell]:
    paper = line.paper or (None,) * len(line.x)
    return {x: PaperCell(y, p) for x, y, p in zip(line.x, line.y, paper, strict=True)}


def _matrix_text(cell: Cell, measure: Measure) -> str:
    estimate = cell.measures.get(measure.key)
    lacking = "not resolvable" if cell.measures and measure.key in RATES else "no figure"
    return written(estimate) if estimate is not None else f"– ({cell.reason or lacking})"


def _paper_text(cell: PaperCell, digits: int) -> str:
    if cell.ours is None:
        text = f"– ({cell.reason})" if cell.reason else "–"
    else:
        text = f"{number(cell.ours.value, digits)}{'≠' if cell.differs else ''} {interval(cell.ours, digits)}".rstrip()
    return text + (f" (paper {number(cell.paper, digits)})" if cell.paper is not None else "")


def _marked(table: PaperTable) -> bool:
    return any(cell.differs for row in table.cells for cell in row)
