"""Reports: the HTML page, tables for papers, figures, and the verdict.

    page = report.build("audit")                    # a directory of runs, or results
    report.write_html(page, "report.html")
    report.to_markdown(page), report.to_latex(page), report.to_csv(page)

The pure function `verdict` has the name of its module, which it hides here; `scapegoat.report.model` holds the data
model.
"""

from scapegoat.membership.metrics import Estimate
from scapegoat.report.figures import write_figures
from scapegoat.report.html import to_html, to_iframe, write_html
from scapegoat.report.model import (
    Cell,
    Line,
    Matrix,
    Page,
    Panel,
    PaperCell,
    PaperFigure,
    PaperTable,
    Section,
    Study,
    Verdict,
)
from scapegoat.report.pages import build
from scapegoat.report.plain import run_rows, verdict_values
from scapegoat.report.pointing import with_plan
from scapegoat.report.risk import risk_values
from scapegoat.report.tables import to_csv, to_latex, to_markdown
from scapegoat.report.verdict import verdict

__all__ = [
    "Cell",
    "Estimate",
    "Line",
    "Matrix",
    "Page",
    "Panel",
    "PaperCell",
    "PaperFigure",
    "PaperTable",
    "Section",
    "Study",
    "Verdict",
    "build",
    "risk_values",
    "run_rows",
    "to_csv",
    "to_html",
    "to_iframe",
    "to_latex",
    "to_markdown",
    "verdict",
    "verdict_values",
    "with_plan",
    "write_figures",
    "write_html",
]
