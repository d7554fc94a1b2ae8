"""The verdict's first part: does the model give its members away at all, to anyone who sees it?

What merely watching gets is held against guessing, by every score of a client's seat, in AUC and in TPR at 1% FPR.

- *Closed*: the interval of each ends within the tolerance of guessing.
- *Open*: some score is demonstrably above guessing (its interval, widened for the number of scores and measures tried,
  lies above it) and not within the tolerance. Or some class or client is, in AUC: a model may keep nearly all its
  secrets and give away those of a few. The intervals of groups are widened for their number.
- *Undecided*: neither.

A model that has not been trained has nothing to give away yet, so nothing is said of it. It counts as undertrained if
it was trained in fewer than `FEW_PASSES` rounds times local epochs and its training accuracy is not yet `MEMORISED`
above its test accuracy. So it does if its training accuracy is within `NEAR` of what naming the largest class of these
records gets, and its test accuracy is no better than that of naming it, or within `NEAR` of training accuracy (it says
the same of everything).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from scapegoat.membership.metrics import Estimate
from scapegoat.report.estimate import over_seeds, stretched
from scapegoat.report.facts import Facts
from scapegoat.report.measures import BY_KEY, METRICS, no_better, number, written
from scapegoat.report.model import Answer, Group, Part
from scapegoat.report.pointing import FIND_A_PLAN
from scapegoat.report.wording import compared

NEAR = 0.03
FEW_PASSES = 20
MEMORISED = 0.2


@dataclass(frozen=True)
class Tried:
    """One score by one measure: over the seeds, widened for all that was tried, and what guessing gets."""

    score: str
    measure: str
    figure: Estimate
    corrected: Estimate
    chance: float

    def leaks(self, tolerance: float) -> bool:
        """Whether it is demonstrably above guessing, by more than could be let pass."""
        return self.corrected.low > self.chance and self.figure.high > self.chance + tolerance

    def harmless(self, tolerance: float) -> bool:
        """Whether more than the tolerance is ruled out."""
        return self.figure.high <= self.chance + tolerance


def tried(runs: Sequence[Facts]) -> list[Tried]:
    """Every score that all runs have, by every measure."""
    pairs = [(s, m) for s, figures in runs[0].scores.items() for m in figures] if runs else []
    pairs = [(s, m) for s, m in pairs if all(m in run.scores.get(s, {}) for run in runs)]
    found = []
    for score, measure in pairs:
        figure = over_seeds([run.scores[score][measure] for run in runs])
        corrected = stretched(figure, len(pairs))
        found.append(Tried(score, measure, figure, corrected, BY_KEY[measure].chance or 0.0))
    return found


def strongest(found: Sequence[Tried]) -> str | None:
    """The score with the largest AUC."""
    by_auc = [t for t in found if t.measure == "auc"]
    return max(by_auc, key=lambda t: t.figure.value).score if by_auc else None


def answer(found: Sequence[Tried], tolerance: float) -> Answer:
    """How things stand by scores over all records."""
    if any(t.leaks(tolerance) for t in found):
        return "open"
    return "closed" if found and all(t.harmless(tolerance) for t in found) else "undecided"


def worst_group(groups: Sequence[Group], tolerance: float) -> Group | None:
    """The group that demonstrably leaks, and most surely; None if none does."""
    leaking = [g for g in groups if g.auc.low > 0.5 and g.auc.value > 0.5 + tolerance]
    return max(leaking, key=lambda g: (g.auc.low, g.auc.value), default=None)


def judge(found: Sequence[Tried], groups: Sequence[Group], tolerance: float, rule: str = "") -> Part | None:
    """The first part; None if nobody merely watched. `rule` is named where it is not plain averaging."""
    if not found:
        return None
    this = f"Under {rule} this" if rule else "This"
    overall = max((t.figure.value for t in found if t.measure == "auc"), default=0.5)
    group = worst_group(groups, tolerance)
    status = answer(found, tolerance)
    if group is not None and (status != "open" or group.auc.low > overall):
        return _of_group(group, overall, this)
    if status == "open":
        leaking = [t for t in found if t.leaks(tolerance)]
        decisive = max(leaking, key=lambda t: t.corrected.low - t.chance)
        return _open(decisive, found, this)
    decisive = max(found, key=lambda t: t.figure.high - t.chance)
    return _not_open(status, decisive, found, f" under {rule}" if rule else "")


def undertrained(runs: Sequence[Facts]) -> str:
    """Why the model counts as not trained; empty if it does not."""
    accuracies = [(r.train_accuracy, r.test_accuracy) for r in runs]
    known = [(train, test) for train, test in accuracies if train is not None and test is not None]
    if not known:
        return ""
    train, test = fmean(train for train, _ in known), fmean(test for _, test in known)
    figures = f"training accuracy {number(train)}, test accuracy {number(test)}"
    passes = max((r.passes for r in runs if r.passes is not None), default=None)
    if passes is not None and passes < FEW_PASSES and train - test <= MEMORISED:
        return f"{figures}, after {passes} round{'' if passes == 1 else 's'} of training"
    shares = [(r.train_majority, r.test_majority) for r in runs if r.test_majority is not None]
    if not shares:
        return ""
    tested = fmean(share for _, share in shares if share is not None)
    # Runs of earlier versions know the share of the test records alone.
    trained = fmean(share for pair in shares if (share := pair[0] if pair[0] is not None else pair[1]) is not None)
    if train <= trained + NEAR and (train - test <= NEAR or no_better(test, tested)):
        alike = number(trained) == number(tested)
        gets = number(tested) if alike else f"{number(trained)} and {number(tested)}"
        return f"{figures}, and naming the largest class alone gets {gets}"
    return ""


def _open(decisive: Tried, found: Sequence[Tried], this: str) -> Part:
    if decisive.measure == "tpr_at_fpr_01":
        low, high = decisive.corrected.drawn
        told = (
            f"{decisive.figure.value:.0%} [{max(low, 0):.0%}, {min(high, 1):.0%}] of its members are found at 1% false "
            "alarms, where guessing finds 1%"
        )
    else:
        told = (
            f"a member is told from a stranger in {compared(decisive.figure.value)} (AUC "
            f"{written(clipped(decisive.corrected))}), where guessing gets 50"
        )
    return Part(
        "open",
        f"{this} model gives its members away to anyone who sees it: {told}.",
        (_decided(decisive, found), *NO_RULE),
        METRICS[decisive.measure],
        clipped(decisive.corrected),
    )


NO_RULE = (
    "Watching alone already beats guessing, and no aggregation rule can undo that: it is what the model memorised.",
    FIND_A_PLAN,
)


def _of_group(group: Group, overall: float, this: str) -> Part:
    return Part(
        "open",
        f"{this} model gives the members of {group.label} away to anyone who sees it: one of them is told from a "
        f"stranger in {compared(group.auc.value)} (AUC {written(group.auc)}; {number(overall)} over all records), "
        f"where guessing gets 50; {group.found} of its {group.members} members are found at 1% false alarms.",
        (
            f"Decided by AUC within {group.label}: its members against the {group.others} non-members of that "
            f"{group.kind}, in an interval that allows for the number of classes and clients looked at.",
            *NO_RULE,
        ),
        f"AUC within {group.label}",
        group.auc,
        group,
    )


def _not_open(status: Answer, decisive: Tried, found: Sequence[Tried], under: str) -> Part:
    if status == "closed":
        more = max(decisive.figure.high - decisive.chance, 0.0)
        headline = f"Merely watching gives little or nothing away{under}: at most {number(more)} more than guessing."
    else:
        headline = f"Whether watching alone gives members away{under} is not settled: {_figure(decisive)}."
    return Part(status, headline, (_decided(decisive, found),), METRICS[decisive.measure], decisive.figure)


def _figure(decisive: Tried) -> str:
    return f"{METRICS[decisive.measure]} is {written(decisive.figure)}, that of guessing {number(decisive.chance)}"


def _decided(decisive: Tried, found: Sequence[Tried]) -> str:
    count = len({t.score for t in found})
    several = f", the strongest of {count} tried; its interval allows for that" if count > 1 else ""
    return f"Decided by {METRICS[decisive.measure]} (score {decisive.score}{several})."


def clipped(estimate: Estimate) -> Estimate:
    """A rate or an AUC whose widened interval has not left 0 to 1."""
    return Estimate(estimate.value, max(estimate.low, 0.0), min(estimate.high, 1.0))
