"""What the figures do not say. A reader who knows this cannot be misled by them."""

from __future__ import annotations

from scapegoat.report.model import Page, Study


def of(page: Page) -> list[tuple[str, str]]:
    """Each limit as a short name and a sentence or two, with this page's own counts."""
    runs = [run for study in page.studies for cell in study.matrix.cells.values() for run in cell.runs if run.measures]
    targets = sorted({run.targets for run in runs if run.targets})
    others = [run.targets - run.members for run in runs if run.targets and run.members]
    seeds = {
        len({run.seed for run in cell.runs if run.measures})
        for study in page.studies
        for cell in study.matrix.cells.values()
    }
    seeds.discard(0)
    found = [
        (
            "The best round is an oracle's choice",
            "Its accuracy is the highest over all rounds, picked with the membership truth in hand. No attacker can "
            "pick it, and the highest of many noisy figures is too high: compare it between cells, not with 0.5. The "
            "final round, AUC and TPR are figures of the model that is handed out.",
        )
    ]
    if targets:
        count = f"{targets[0]:,}" if len(targets) == 1 else f"{targets[0]:,} to {targets[-1]:,}"
        least = min(others, default=0)
        finest = (
            f" With {least:,} non-members no false positive rate below {100 / least:.2g}% can be resolved"
            if least
            else ""
        )
        found.append(
            (
                f"{count} targets",
                f"Intervals are 95% and cover the draw of the targets.{finest}" + _zero_false_alarms(least),
            )
        )
    if seeds == {1}:
        found.append(
            (
                "One seed",
                "Another seed trains another model on another split. Differences smaller than the spread between seeds "
                "mean nothing, and that spread is not known here. Run more seeds before a decision rests on it.",
            )
        )
    elif seeds:
        count = str(max(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        found.append(
            (
                f"{count} seeds",
                "Figures are means over seeds. Intervals are Student's t over seeds, never narrower than what the "
                "number of targets alone would give. A few seeds say little about rare outcomes.",
            )
        )
    found += [
        (
            "The attacks that were tried",
            "A rule that withstands them may fall to one that was not tried, above all to one that knows the rule. "
            "“Closed” means closed to these.",
        ),
        (
            "Targets are not a random sample of people",
            "Half of them are members, of all honest clients alike, and rare classes have more than their share. In "
            "the world an attacker rarely starts from even odds, so precision there is lower; TPR at a fixed FPR "
            "carries over, accuracy does not.",
        ),
        (
            "A simulation" if not page.studies or any(not _live(study) for study in page.studies) else "One federation",
            "Data, model and federation are as listed under the settings. Leakage grows with memorisation: longer "
            "training or fewer records raise every figure here.",
        ),
    ]
    return found


def _live(study: Study) -> bool:
    """Whether a framework's own processes trained its models."""
    return any(key.split(".")[0] == "live" for key in study.settings)


def _zero_false_alarms(others: int) -> str:
    """Which figures are really those at no false alarm at all, for so many non-members."""
    rates = [rate for rate, needed in (("1%", 100), ("0.1%", 1000)) if 0 < others < needed]
    if not rates:
        return "." if others else ""
    same = "are then the same figure," if len(rates) > 1 else "is then"
    return f": TPR at {' and '.join(rates)} FPR {same} the share found with no false alarm."
