"""How well membership was told, with what certainty."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import special

LEVEL = 0.95
RESAMPLES = 1000


@dataclass(frozen=True)
class Estimate:
    """A figure `value` and its confidence interval from `low` to `high`, of 95% unless a function says otherwise.

    Where no interval is known it is the whole line: then nothing is claimed of the figure, above or below anything.

    Examples
    --------
    >>> Estimate(0.7, 0.6, 0.8).bounded, Estimate(0.7).bounded
    (True, False)
    """

    value: float
    low: float = -math.inf
    high: float = math.inf

    @property
    def bounded(self) -> bool:
        """Whether an interval is known."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def drawn(self) -> tuple[float, float]:
        """The ends of what is drawn of it: the interval, or the figure alone."""
        return (self.low, self.high) if self.bounded else (self.value, self.value)

    @property
    def ci(self) -> list[float]:
        """The interval as the summary writes it."""
        return [self.low, self.high]


def rate(hits: int, trials: int, level: float = LEVEL) -> Estimate:
    """A rate with its exact (Clopper-Pearson) interval.

    Parameters
    ----------
    hits: how often it happened.
    trials: how often it could have.
    level: of confidence.

    Returns
    -------
    hits / trials with its interval. Without a trial nothing is known: 0 in [0, 1].

    Examples
    --------
    >>> found = rate(9, 10)
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.9, 0.555, 0.997)
    """
    if trials == 0:
        return Estimate(0.0, 0.0, 1.0)
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else float(special.betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits == trials else float(special.betaincinv(hits + 1, trials - hits, 1 - tail))
    return Estimate(hits / trials, low, high)


@dataclass(frozen=True)
class Calls:
    """Yes/no calls against the truth: `accuracy`, `precision`, `recall` and `advantage`, each with its interval.

    Examples
    --------
    >>> found = calls(np.array([True, True, False, False]), np.array([True, False, True, False]))
    >>> found.precision.value, found.advantage.value
    (0.5, 0.0)
    """

    accuracy: Estimate
    precision: Estimate
    recall: Estimate
    advantage: Estimate


def calls(called: np.ndarray, member: np.ndarray) -> Calls:
    """How good yes/no calls are.

    Parameters
    ----------
    called: [targets], who was called a member.
    member: [targets], who is one.

    Returns
    -------
    Accuracy, precision, recall and advantage (true minus false positive rate), each with its exact interval.

    Examples
    --------
    >>> member = np.arange(100) < 50
    >>> calls(member, member).accuracy.value
    1.0
    """
    called, member = called.astype(bool), member.astype(bool)
    true_positives = int((called & member).sum())
    false_positives = int((called & ~member).sum())
    members, others = int(member.sum()), int((~member).sum())
    recall = rate(true_positives, members)
    fall_out = rate(false_positives, others)
    # Newcombe's square-and-add interval for a difference of two independent rates, from their exact intervals.
    difference = recall.value - fall_out.value
    low = difference - np.hypot(recall.value - recall.low, fall_out.high - fall_out.value)
    high = difference + np.hypot(recall.high - recall.value, fall_out.value - fall_out.low)
    return Calls(
        accuracy=rate(true_positives + others - false_positives, members + others),
        precision=rate(true_positives, true_positives + false_positives),
        recall=recall,
        advantage=Estimate(difference, max(float(low), -1.0), min(float(high), 1.0)),
    )


def auc_value(scores: np.ndarray, member: np.ndarray) -> float:
    """Probability that a member outscores a non-member, ties counting half.

    Parameters
    ----------
    scores: [targets], higher for those more likely to be members; NaN ranks lowest.
    member: [targets], who is one.

    Returns
    -------
    The area under the ROC; 0.5 where there are no members, or only members.

    Examples
    --------
    >>> auc_value(np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, True, False, False]))
    0.75
    """
    member = member.astype(bool)
    members, others = int(member.sum()), int((~member).sum())
    if members == 0 or others == 0:
        return 0.5
    # Ranks with ties sharing their mean rank; scipy.stats has them too, but takes a second to import.
    _, place, count = np.unique(_ordered(scores), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((ranks[member].sum() - members * (members + 1) / 2) / (members * others))


def auc(scores: np.ndarray, member: np.ndarray, seed: int = 0) -> Estimate:
    """AUC with a bootstrap interval over targets, members and non-members resampled separately.

    With perfect separation every resample is perfect too; the interval then is widened by the exact interval of the
    rarer group, so that it never claims certainty.

    Parameters
    ----------
    scores: [targets], higher for those more likely to be members; NaN ranks lowest.
    member: [targets], who is one.
    seed: of the resampling.

    Returns
    -------
    The AUC with its interval.

    Examples
    --------
    >>> found = auc(np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, True, False, False]))
    >>> found.value, found.low <= 0.75 <= found.high
    (0.75, True)
    """
    member = member.astype(bool)
    value = auc_value(scores, member)
    inside, outside = np.sort(_ordered(scores[member])), np.sort(_ordered(scores[~member]))
    if len(inside) == 0 or len(outside) == 0:
        return Estimate(value, 0.0, 1.0)
    below = np.searchsorted(outside, inside, side="left")
    wins = np.stack([below, np.searchsorted(outside, inside, side="right")])
    if wins.min() == len(outside) or wins.max() == 0:
        bound = rate(len(outside), len(outside)) if len(outside) <= len(inside) else rate(len(inside), len(inside))
        return Estimate(value, bound.low, 1.0) if value > 0.5 else Estimate(value, 0.0, 1.0 - bound.low)
    weight_in, weight_out = _resampled(len(inside), len(outside), seed)
    # A member wins over the non-members below it, and half over its equals. All terms are halves of whole numbers, so
    # the sums are exact in any order.
    up_to = np.zeros((len(outside) + 1, RESAMPLES))
    np.cumsum(weight_out, axis=0, out=up_to[1:])
    twice_won = up_to[wins[0]] + up_to[wins[1]]
    samples = np.einsum("ir,ir->r", weight_in, twice_won) / (2 * len(inside) * len(outside))
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(min(low, value)), float(max(high, value)))


@functools.lru_cache(maxsize=2)
def _resampled(members: int, others: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each member and each non-member is in each resample: [members, resamples] and [others, resamples].

    All scores of a run, and all runs of a seed, are resampled alike.
    """
    rng = np.random.default_rng(seed)
    drawn = [rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) for n in (members, others)]
    inside, outside = (np.ascontiguousarray(counts.T, dtype=np.int32) for counts in drawn)
    return inside, outside


def tpr_at_fpr(scores: np.ndarray, member: np.ndarray, fpr: float) -> Estimate:
    """Largest share of members found by a threshold that lets at most `fpr` of the non-members through.

    The interval is exact for the share of members above that threshold; it takes the threshold as given.

    Parameters
    ----------
    scores: [targets], higher for those more likely to be members; NaN ranks lowest.
    member: [targets], who is one.
    fpr: the false positive rate that is allowed.

    Returns
    -------
    The true positive rate with its interval.

    Examples
    --------
    >>> member = np.arange(200) < 100
    >>> tpr_at_fpr(np.where(member, 1.0, 0.0), member, 0.01).value
    1.0
    """
    member = member.astype(bool)
    ordered = _ordered(scores)
    inside, outside = ordered[member], np.sort(ordered[~member])[::-1]
    allowed = int(np.floor(fpr * len(outside) + 1e-9))
    found = int((inside > outside[allowed]).sum()) if allowed < len(outside) else len(inside)
    return rate(found, len(inside))


def best_threshold_accuracy(scores: np.ndarray, member: np.ndarray) -> float:
    """Accuracy at the best threshold of all, an oracle's choice: an upper end for any calibration."""
    member = member.astype(bool)
    order = np.argsort(-_ordered(scores), kind="stable")
    sorted_scores, truth = _ordered(scores)[order], member[order]
    hits = np.cumsum(truth) + (~truth).sum() - np.cumsum(~truth)
    last_of_tie = np.append(sorted_scores[1:] != sorted_scores[:-1], True)
    return float(max(hits[last_of_tie].max(), (~member).sum()) / len(member))


def _ordered(scores: np.ndarray) -> np.ndarray:
    """Scores that can be ranked: a NaN says nothing, so it ranks lowest."""
    return np.nan_to_num(scores.astype(np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
