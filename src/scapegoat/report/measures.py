"""The figures that a report shows, how they are called, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scapegoat.membership.metrics import Estimate


@dataclass(frozen=True)
class Measure:
    """One figure of a run's summary. `chance` is what guessing gets, `low` and `high` span the colour scale."""

    key: str
    label: str
    short: str
    about: str
    chance: float | None = None
    low: float = 0.0
    high: float = 1.0


LEAKAGE = (
    Measure(
        "accuracy_best",
        "Accuracy, best round",
        "Accuracy (best)",
        "Share of the targets called correctly by the paper's rule (the model predicts the true label: a member), in "
        "the round where it is highest. An attacker cannot know which round that is: an upper end.",
        chance=0.5,
        low=0.5,
    ),
    Measure(
        "accuracy_final",
        "Accuracy, final round",
        "Accuracy (final)",
        "The same rule on the model as it is handed out after the last round.",
        chance=0.5,
        low=0.5,
    ),
    Measure(
        "auc",
        "AUC",
        "AUC",
        "Chance that a member's score is above a non-member's; the score is the final model's margin on the true "
        "label. Needs no threshold, so it also sees what a yes/no rule hides.",
        chance=0.5,
        low=0.5,
    ),
    Measure(
        "tpr_at_fpr_01",
        "TPR at 1% FPR",
        "TPR @ 1% FPR",
        "Share of the members found when at most one non-member in a hundred may be called a member by mistake.",
        chance=0.01,
    ),
)

TEST_ACCURACY = Measure(
    "test_accuracy", "Test accuracy", "Test accuracy", "Of the final model, on data nobody trained on."
)

OTHERS = (
    Measure(
        "auc_worst",
        "AUC of the worst score",
        "AUC (worst)",
        "Of all scores that were tried, the one that tells members best.",
        chance=0.5,
    ),
    Measure("tpr_at_fpr_001", "TPR at 0.1% FPR", "TPR @ 0.1% FPR", "As above, one in a thousand.", chance=0.001),
    Measure("precision", "Precision, best round", "Precision", "Share of those called members that are.", chance=0.5),
    Measure("recall", "Recall, best round", "Recall", "Share of the members that are called so."),
    Measure("advantage", "Advantage", "Advantage", "True minus false positive rate.", chance=0.0),
    Measure(
        "auc_mean",
        "AUC of the mean score",
        "AUC (mean)",
        "Scores averaged over the last half of the rounds.",
        chance=0.5,
    ),
    Measure(
        "train_accuracy", "Training accuracy", "Train accuracy", "Far above test accuracy: the model has memorised."
    ),
)

ALL = (*LEAKAGE, TEST_ACCURACY, *OTHERS)
BY_KEY = {measure.key: measure for measure in ALL}

RATES = {"tpr_at_fpr_01": 0.01, "tpr_at_fpr_001": 0.001}
"""The false positive rates at which shares of members are measured."""
METRICS = {"accuracy_best": "accuracy", "auc": "AUC", "tpr_at_fpr_01": "TPR at 1% false alarms"}
"""What decides verdicts, as prose calls it."""

TIED = 1e-6
"""Figures of quality that differ by no more are equal."""

ATTACK_NAMES = {
    "passive": "watching",
    "gradient_ascent": "gradient ascent",
    "agrevader": "AGREvader",
    "adaptive": "the adaptive attack",
    "fedpoisonmia": "FedPoisonMIA",
    "blend": "the blend",
    "alie": "a little is enough",
    "ipm": "inner product manipulation",
    "mimic": "mimicry",
}
ATTACK_ORDER = tuple(ATTACK_NAMES)
DEFENSE_ORDER = (
    "fedavg",
    "dp",
    "top_k",
    "norm_clipping",
    "median",
    "geometric_median",
    "trimmed_mean",
    "krum",
    "multi_krum",
    "bulyan",
    "fang",
    "fltrust",
    "flame",
    "deepsight",
    "atm",
    "clipped_atm",
    "memory_atm",
    "reputation_atm",
)


def no_better(accuracy: float, majority: float) -> bool:
    """Whether a model answers no better than by always saying the same.

    Accuracies are means in single precision, shares of a class are not: equal ones differ in the eighth digit.
    """
    return accuracy <= majority + TIED


def from_summary(summary: Mapping[str, Any]) -> dict[str, Estimate]:
    """Every figure that a run's summary gives, with its interval where there is one."""
    membership = summary.get("membership") or {}
    found: dict[str, Estimate] = {}
    for measure in ALL:
        figure = estimate_of(membership if measure.key in membership else summary, measure.key)
        if figure is not None:
            found[measure.key] = figure
    worst = membership.get("worst_score")
    if isinstance(worst, Mapping) and (figure := estimate_of(worst, "auc")) is not None:
        found["auc_worst"] = figure
    return found


def estimate_of(source: Mapping[str, Any], key: str) -> Estimate | None:
    """The figure `key` with its interval `key_ci`; None if it is not a number."""
    value = finite(source.get(key))
    if value is None:
        return None
    bounds = source.get(f"{key}_ci")
    low, high = (finite(b) for b in bounds) if isinstance(bounds, list | tuple) and len(bounds) == 2 else (None, None)
    return Estimate(value, low, high) if low is not None and high is not None else Estimate(value)


def finite(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def number(value: float | None, digits: int = 2) -> str:
    """A figure as the page prints it; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def signed(estimate: Estimate) -> str:
    """A difference with its sign and interval."""
    bounds = f" [{estimate.low:+.2f}, {estimate.high:+.2f}]" if estimate.bounded else ""
    return f"{estimate.value:+.2f}{bounds}"


def interval(estimate: Estimate, digits: int = 2) -> str:
    """The interval as the page prints it, or nothing."""
    if not estimate.bounded:
        return ""
    return f"[{number(estimate.low, digits)}, {number(estimate.high, digits)}]"


def written(estimate: Estimate | None, digits: int = 2) -> str:
    """Figure and interval."""
    if estimate is None:
        return "–"
    return f"{number(estimate.value, digits)} {interval(estimate, digits)}".rstrip()
