"""What a run says beside its leakage figures: every score's, whether to believe them, and how far it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from scapegoat.accounting import rule_delta
from scapegoat.membership.epsilon import DELTA
from scapegoat.membership.metrics import Estimate
from scapegoat.report.estimate import stretched
from scapegoat.report.measures import estimate_of, finite

MEASURES = ("auc", "tpr_at_fpr_01")
PLAIN_SCORE = "final_margin"
"""The one score of summaries that list none: the final model's margin."""


@dataclass(frozen=True)
class Guessed:
    """What a bound on epsilon was computed from: by rule, the guesses that were made, and the most correct ones.

    `tried` scores made guesses, on `targets` of which `members` are members.
    """

    targets: int
    members: int
    tried: int
    by_rule: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Facts:
    """What a summary tells; None and empty where it does not, as summaries of earlier versions.

    `scores` are those of a client's seat, `server_scores` those of the server's, each a figure per measure.
    `doubts` are the reasons for which the figures do not speak of leakage. The majorities are what always giving the
    same answer gets of these records. `passes` counts rounds times local epochs. `records` are those trained on.
    `epsilon` is what the run accounts for, of an `epsilon_unit`: "record" or "client"; `refutable` is the smallest
    such epsilon that what is shown can contradict. `epsilon_lower` is what its scores show, by the guesses that they
    made, `guessed`; `epsilon_reachable` is the most that any scores of its targets could have shown, `epsilon_ceiling`
    that of any audit with as many targets.
    `sums_only`: whether the rule needs no more than the sum of what clients send. `coins`: whether fair coins made the
    members; `blind` is the AUC of a classifier that sees the records alone, `chance` the p value of each score,
    `rare` its TPR at 0.1% FPR where that can be resolved, and `bounds` lower bounds on epsilon by what they take for
    granted.
    """

    scores: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)
    server_scores: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    train_accuracy: float | None = None
    test_accuracy: float | None = None
    train_majority: float | None = None
    test_majority: float | None = None
    passes: int | None = None
    records: int | None = None
    epsilon: float | None = None
    epsilon_unit: str = ""
    refutable: float | None = None
    epsilon_lower: float | None = None
    epsilon_ceiling: float | None = None
    epsilon_reachable: float | None = None
    guessed: Guessed | None = None
    sums_only: bool | None = None
    coins: bool | None = None
    blind: Estimate | None = None
    chance: Mapping[str, float] = field(default_factory=dict)
    rare: Mapping[str, Estimate] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)


def facts(summary: Mapping[str, Any], spec: Mapping[str, Any] | None = None) -> Facts:
    """The facts of one run, from its summary and, for how long it was trained locally, its spec."""
    membership = summary.get("membership") or {}
    listed = membership.get("scores")
    scores: dict[str, dict[str, dict[str, Estimate]]] = {"client": {}, "server": {}}
    for name, entry in (listed if isinstance(listed, Mapping) else {PLAIN_SCORE: membership}).items():
        figures = {m: found for m in MEASURES if (found := estimate_of(entry, m)) is not None}
        if figures:
            scores.setdefault(str(entry.get("seat", "client")), {})[str(name)] = figures
    validity = summary.get("validity") or {}
    doubts = tuple(str(reason) for reason in validity.get("reasons") or ())
    if validity.get("valid") is False and not doubts:
        doubts = ("the run's own checks failed",)
    accounted = _accounted(summary)
    return Facts(
        scores=scores["client"],
        server_scores=scores["server"],
        doubts=doubts,
        train_accuracy=finite(summary.get("train_accuracy")),
        test_accuracy=finite(summary.get("test_accuracy")),
        train_majority=finite(summary.get("train_majority")),
        test_majority=finite(summary.get("test_majority")),
        passes=_passes(summary, spec or {}),
        records=None if (records := finite(summary.get("training_records"))) is None else round(records),
        epsilon=accounted[0],
        epsilon_unit=accounted[1],
        refutable=refutable(summary, spec),
        epsilon_lower=finite(membership.get("epsilon_lower")),
        epsilon_ceiling=finite(membership.get("epsilon_ceiling")),
        epsilon_reachable=finite(membership.get("epsilon_reachable")),
        guessed=_guessed(membership),
        sums_only=sums if isinstance(sums := (summary.get("aggregation") or {}).get("sums_only"), bool) else None,
        coins=(design == "coin") if (design := ((spec or {}).get("evaluation") or {}).get("design")) else None,
        blind=estimate_of(validity, "blind_auc"),
        chance=_finite_ones(validity.get("permutation_p")),
        rare={
            str(name): found
            for name, entry in (listed if isinstance(listed, Mapping) else {}).items()
            if (found := estimate_of(entry, "tpr_at_fpr_001")) is not None
        },
        bounds=_finite_ones(membership.get("epsilon_bounds")),
    )


def _finite_ones(values: Any) -> dict[str, float]:
    """The numbers of a mapping; empty if it is none."""
    listed = values.items() if isinstance(values, Mapping) else ()
    return {str(name): number for name, value in listed if (number := finite(value)) is not None}


def _guessed(membership: Mapping[str, Any]) -> Guessed | None:
    listed, worst = membership.get("epsilon_guesses"), membership.get("worst_score")
    if not isinstance(listed, list) or not isinstance(worst, Mapping):
        return None
    pairs = [rule for rule in listed if isinstance(rule, list) and len(rule) == 2]
    given = [membership.get("targets"), membership.get("members"), worst.get("tried"), *chain(*pairs)]
    counts = [round(count) for count in map(finite, given) if count is not None]
    if not pairs or len(pairs) < len(listed) or len(counts) < len(given):
        return None
    targets, members, tried, *rest = counts
    return Guessed(targets, members, tried, tuple(zip(rest[::2], rest[1::2], strict=True)))


def _accounted(summary: Mapping[str, Any]) -> tuple[float | None, str]:
    """The smallest epsilon that a run accounts for, and of whom.

    A client's holds for each of its records too: hiding all that a client sends hides every record of it.
    """
    privacy = summary.get("privacy")
    found = [
        (epsilon, unit)
        for epsilon, unit in (
            (finite(privacy.get("epsilon")) if isinstance(privacy, Mapping) else None, "record"),
            (finite((summary.get("aggregation") or {}).get("epsilon")), "client"),
        )
        if epsilon is not None
    ]
    return min(found, default=(None, ""))


def refutable(summary: Mapping[str, Any], spec: Mapping[str, Any] | None = None) -> float | None:
    """The smallest epsilon that a run accounts for, of those that what is shown can refute; None if there is none.

    That is shown at `DELTA`: whoever promises an epsilon at a smaller delta promises it at this one too, whoever
    promises it at a larger one, or does not say at which, does not. The delta of a rule's noise is that of its spec
    where the summary does not have it.
    """
    privacy, aggregation = summary.get("privacy"), summary.get("aggregation") or {}
    stated = [(privacy.get("epsilon"), privacy.get("delta"))] if isinstance(privacy, Mapping) else []
    stated.append((aggregation.get("epsilon"), aggregation.get("delta") or rule_delta((spec or {}).get("defense"))))
    known = [(finite(claim), finite(delta)) for claim, delta in stated]
    return min((c for c, delta in known if c is not None and delta is not None and delta <= DELTA), default=None)


def _passes(summary: Mapping[str, Any], spec: Mapping[str, Any]) -> int | None:
    federation = spec.get("federation") or {}
    rounds = finite(summary.get("rounds")) or finite(federation.get("rounds"))
    local = federation.get("local")
    epochs = finite(local.get("epochs")) if isinstance(local, Mapping) else None
    return None if rounds is None else round(rounds * max(epochs or 1, 1))


def by_strongest_score(measures: Mapping[str, Estimate], told: Facts) -> dict[str, Estimate]:
    """A run's figures with AUC and TPR of whichever score of a client's seat tells most, instead of the final margin's.

    Defenses that blur the final model alone do not stop who scores the rounds before. Intervals are widened for the
    scores tried.
    """
    found = dict(measures)
    for measure in MEASURES:
        figures = [scores[measure] for scores in told.scores.values() if measure in scores]
        if measure in found and len(figures) > 1:
            best = stretched(max(figures, key=lambda figure: figure.value), len(figures))
            found[measure] = Estimate(best.value, max(best.low, 0.0), min(best.high, 1.0)) if best.bounded else best
    return found
