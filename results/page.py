"""The page of results: each of the paper's claims, what was measured and whether it holds; then the tables.

Every figure on it is read from result files; none is typed in, but for a note that may lie beside them, on runs
that were computed twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results.claims import Finding, findings
from results.files import Collection, load
from scapegoat.membership.metrics import Estimate
from scapegoat.report.measures import from_summary
from scapegoat.report.model import Page
from scapegoat.report.sweeps import section
from scapegoat.report.tables import to_markdown
from scapegoat.sweeps import registry

# Precision, recall and the final round are in the files; the page keeps to what the claims are about.
SHOWN = ("accuracy_best", "test_accuracy")

# In a folder of result files: what is known of runs that were computed twice, of which the files hold one result only.
NOTE = "computed-again.md"


def page(folder: str | Path, command: str = "") -> str:
    """The page for a folder of result files, as Markdown."""
    collection = load(folder)
    note = _note(folder)
    found = findings(collection)
    parts = [
        "# What came out",
        _made(command, note),
        "## The paper's claims",
        "A difference is *clear* when its 95% interval, widened for all comparisons of the claim together "
        "(Bonferroni), leaves out zero, or the limit that the claim names; with one seed the interval is that of the "
        "targets alone, or of the test records for a test accuracy. Attack accuracies are of the best round, an "
        "oracle's choice, as in the paper.",
        "A claim is judged by the paper's rules and settings: its nine rules as its sweeps set them, its attacks and "
        "federations, server Adam 0.01. Other rules, trims and learning rates are told apart, as *beyond the paper's "
        "settings*. A cell that was run for several numbers of rounds counts once, at the number with the most "
        "comparisons, and of these the longest. An option in brackets, as in `atm (trim=2)`, is not the one that a "
        "sweep would set.",
        _verdicts(found, collection),
        *(_details(number, finding, collection) for number, finding in enumerate(found, 1)),
        "## Where the numbers come from",
        _sources(collection),
        _missing(collection, _apart(folder)),
        _computed_again(collection, note),
        "## The tables",
        *_tables(collection),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _note(folder: str | Path) -> str:
    path = Path(folder) / NOTE
    return " ".join(path.read_text(encoding="utf-8").split()) if path.exists() else ""


def _made(command: str, note: str) -> str:
    apart = " but those on runs computed again" if note else ""
    line = f"Every number on this page{apart} is read from the Parquet files beside it"
    return f"{line}; `{command}` makes the page. Do not edit it." if command else f"{line}."


def _verdicts(found: Sequence[Finding], collection: Collection) -> str:
    rows = [
        (str(number), f.claim, f"**{f.verdict}**", f.measured, _unfinished(f, collection) or "–")
        for number, f in enumerate(found, 1)
    ]
    return _markdown(("", "claim", "verdict", "measured", "rests on sweeps run in part"), rows)


def _unfinished(finding: Finding, collection: Collection) -> str:
    """The sweeps behind a finding of which runs are missing."""
    return "; ".join(
        f"{plan['sweep']}: {len(wanted & collection.runs.keys())} of {len(wanted)} runs"
        for plan, wanted in ((plan, _runs(plan)) for plan in collection.plans)
        if finding.sources & wanted and wanted - collection.runs.keys()
    )


def _details(number: int, finding: Finding, collection: Collection) -> str:
    parts = [f"### {number}. {finding.claim}", f"**{finding.verdict}**: {finding.measured}"]
    for title, head, rows in finding.tables:
        parts += [f"{title}:" if title else "", _markdown(head, rows)]
    names = [plan["sweep"] for plan in collection.plans if finding.sources & _runs(plan)]
    if names:
        partly = _unfinished(finding, collection)
        parts.append(f"From the sweeps {', '.join(dict.fromkeys(names))}." + (f" In part: {partly}." if partly else ""))
    return "\n\n".join(part for part in parts if part)


def _runs(plan: Mapping[str, Any]) -> set[str]:
    return {name for cell in plan["cells"] for name in cell["runs"]}


def _sources(collection: Collection) -> str:
    rows = []
    for plan in collection.plans:
        wanted = _runs(plan)
        there = [collection.runs[name] for name in sorted(wanted) if name in collection.runs]
        if plan["kind"] == "cost":
            dates = sorted({row["date"] for row in collection.costs if row["sweep"] == plan["sweep"]})
            rows.append((plan["sweep"], "timings", _span(dates), "", f"`{plan['command']}`"))
        elif there:
            seconds = sum(float(row["summary"]["seconds"]) for row in there)
            dates = sorted({row["date"] for row in there})
            count = f"{len(there)} of {len(wanted)}"
            rows.append((plan["sweep"], count, _span(dates), f"{seconds / 3600:.2f}", f"`{plan['command']}`"))
    files = ", ".join(f"`{name}` ({count} runs)" for name, count in collection.files.items())
    table = _markdown(("sweep", "runs", "dates", "core hours", "command"), rows)
    return f"{table}\n\nFiles: {files}. Versions: {_versions(collection)}."


def _span(dates: Sequence[str]) -> str:
    return "" if not dates else dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def _versions(collection: Collection) -> str:
    found: dict[str, set[str]] = defaultdict(set)
    for row in collection.runs.values():
        for name, version in row["summary"].get("versions", {}).items():
            found[name].add(version)
    return (
        ", ".join(f"{name} {' and '.join(sorted(versions))}" for name, versions in sorted(found.items())) or "unknown"
    )


def _apart(folder: str | Path) -> Mapping[str, Collection]:
    """The result files in folders of their own, by folder: no claim of the paper's rests on them."""
    inside = sorted({path.parent for path in Path(folder).glob("*/*.parquet")})
    return {path.name: load(path) for path in inside}


def _missing(collection: Collection, apart: Mapping[str, Collection]) -> str:
    there = {
        plan["sweep"] for plan in collection.plans if plan["kind"] == "cost" or _runs(plan) & collection.runs.keys()
    }
    elsewhere = [
        f"`{plan['command']}` ({len(_runs(plan) & beside.runs.keys())} of {len(_runs(plan))} runs, in `{name}/`)"
        for name, beside in apart.items()
        for plan in beside.plans
        if plan["sweep"] in registry and plan["sweep"] not in there and _runs(plan) & beside.runs.keys()
    ]
    known = {plan["sweep"] for beside in apart.values() for plan in beside.plans}
    missing = [name for name in registry if name not in there | known]
    partly = [
        f"`{plan['command']}`"
        for plan in collection.plans
        if plan["kind"] != "cost" and 0 < len(_runs(plan) & collection.runs.keys()) < len(_runs(plan))
    ]
    told = (("Not run", missing), ("In part", partly), ("Not on this page", elsewhere))
    words = [f"{what}: {', '.join(names)}." for what, names in told if names]
    files = [
        f"`{name}/{file}` ({count} runs)" for name, beside in apart.items() for file, count in beside.files.items()
    ]
    words += [f"Files for other pages: {', '.join(files)}."] if files else []
    return " ".join(words)


def _computed_again(collection: Collection, note: str) -> str:
    days = Counter(row["date"] for row in collection.runs.values())
    if not days:
        return ""
    counts = ", ".join(f"{count} on {day}" for day, count in sorted(days.items()))
    return (
        f"Runs by day: {counts}. Computed again by another version, a run may differ, because not every version adds "
        "numbers up in the same order. Training is chaotic: a difference in the last digit grows until another round "
        f"is the best one, and with one seed no interval covers that. {note}"
    ).strip()


def _tables(collection: Collection) -> list[str]:
    def look(name: str) -> Mapping[str, Estimate] | str:
        row = collection.runs.get(name)
        return from_summary(row["summary"]) if row is not None else "not run"

    parts = []
    for plan in collection.plans:
        if plan["kind"] != "cost" and not _runs(plan) & collection.runs.keys():
            continue
        metrics = [m for m in plan["metrics"] if m in SHOWN]
        drawn = section({**plan, "metrics": metrics}, look)
        text = to_markdown(Page(title="", sections=(drawn,)))
        # The page has a title of its own, and its sections are one level down.
        parts.append("\n".join(line for line in text.splitlines() if line != "# ").replace("## ", "### ", 1).strip())
    return parts


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
