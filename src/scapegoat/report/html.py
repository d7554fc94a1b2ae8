"""The report as one HTML file: no network, no library, nothing executed but the page's own script."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from scapegoat.files import write_text
from scapegoat.report import limits, risk_view, views
from scapegoat.report.measures import LEAKAGE, interval, number, written
from scapegoat.report.model import Page
from scapegoat.report.payload import BUDGET, to_json

_HERE = Path(__file__).parent
_STYLES = ("report.css", "detail.css", "plan.css", "risk.css")
_SCRIPTS = ("chart.js", "panels.js", "rounds.js", "paper.js", "plan.js", "page.js")


def to_html(page: Page, budget: int = BUDGET) -> str:
    """The page as one HTML document that loads nothing.

    Parameters
    ----------
    page: what `build` made.
    budget: bytes that it should not exceed; beyond, fewer rounds are drawn.

    Returns
    -------
    The document.

    Examples
    --------
    >>> to_html(Page("An audit"))[:15]
    '<!doctype html>'
    """
    theme, script, style = (
        _asset("theme.js"),
        "\n".join(map(_asset, _SCRIPTS)),
        "".join(map(_asset, _STYLES)),
    )
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            studies=[views.study(study, index) for index, study in enumerate(page.studies)],
            risks=risk_view.of(page.studies),
            sections=views.sections(page.sections),
            measures=LEAKAGE,
            limits=limits.of(page),
            style=Markup(style),
            theme=Markup(theme),
            script=Markup(script),
            data=Markup(to_json(page, budget)),
            policy=_policy(theme, script),
        )
    )


def write_html(page: Page, path: str | Path, budget: int = BUDGET) -> Path:
    """Write the page; the file is there whole or not at all.

    Parameters
    ----------
    page: what `build` made.
    path: the file.
    budget: bytes that it should not exceed; beyond, fewer rounds are drawn.

    Returns
    -------
    The path.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_html(Page("An audit"), Path(folder) / "report.html").name
    'report.html'
    """
    target = Path(path)
    write_text(target, to_html(page, budget))
    return target


def to_iframe(page: Page, height: int = 900) -> str:
    """The page inside a frame, for a notebook's output: its styles and script stay its own.

    Parameters
    ----------
    page: what `build` made.
    height: of the frame, in pixels.

    Returns
    -------
    The frame as HTML.

    Examples
    --------
    >>> to_iframe(Page("An audit"))[:24]
    '<iframe title="An audit"'
    """
    document = html.escape(to_html(page), quote=True)
    return (
        f'<iframe title="{html.escape(page.title, quote=True)}" sandbox="allow-scripts" srcdoc="{document}" '
        f'style="width:100%;height:{int(height)}px;border:0"></iframe>'
    )


def _policy(*scripts: str) -> str:
    """A content security policy under which nothing loads and no other script runs, whatever got into the page."""
    digests = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {digests}; {rest}"


def _breakable(text: str) -> Markup:
    """A name that may break after an underscore."""
    return Markup("_<wbr>").join(text.split("_"))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"number": number, "interval": interval, "written": written, "breakable": _breakable}
    environment.filters.update(filters)
    return environment


@lru_cache(maxsize=16)
def _asset(name: str) -> str:
    return (_HERE / "assets" / name).read_text(encoding="utf-8")
