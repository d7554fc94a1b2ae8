"""Lower bounds on epsilon that one audited run supports.

What each bound rests on:

- `one_run`: targets were made members by independent fair coins. Nothing else: it holds for every mechanism.
- `one_run_gaussian`: the same, and the mechanism is as private as some Gaussian mechanism (noisy SGD is, randomised
  response is not). It says which Gaussian mechanism the run refutes.
- `clopper_pearson`: targets score independently of each other, given who the members are.
- `auc_gaussian`: both of the latter, and enough targets for the AUC to be close to normal.

How many guesses are made is a rule that is fixed before the run (`RULES`); a run that is tried with several rules
pays for them by Bonferroni's correction. A threshold never comes from the targets it is applied to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from scapegoat.errors import InputError
from scapegoat.membership.delong import auc_covariance
from scapegoat.membership.guessing import DELTA as DELTA
from scapegoat.membership.guessing import epsilon_of_guesses, gaussian_epsilon, gaussian_epsilon_of_guesses
from scapegoat.membership.scoring import Floats

CONFIDENCE = 0.95
APPROXIMATE = 0.8
"""A bound by a normal approximation uses so much of its error probability: the rest is for the approximation."""


@dataclass(frozen=True)
class Guesses:
    """The share of the targets with the highest scores that is called members, with the lowest, non-members.

    On the rest the auditor abstains.

    Examples
    --------
    >>> Guesses(top=0.1).counts(300)
    (30, 0)
    """

    top: float
    bottom: float = 0.0

    def counts(self, targets: int) -> tuple[int, int]:
        """How many are called members, and non-members, of so many targets."""
        top = min(round(self.top * targets), targets)
        return top, min(round(self.bottom * targets), targets - top)


EVERY_TARGET = Guesses(top=0.5, bottom=0.5)
NEARLY_ALL = Guesses(top=0.45, bottom=0.45)
CERTAIN = Guesses(top=0.2, bottom=0.2)
MOST_CERTAIN = Guesses(top=0.1, bottom=0.1)
RULES = (NEARLY_ALL, CERTAIN)
"""Guess nearly every target (strong where all leak), or a fifth at either end (strong where some do).

Not every target: of fair coins seldom exactly half come up members, and guesses by rank in the middle then err.
"""


@dataclass(frozen=True)
class EpsilonBound:
    """A lower bound on epsilon and what it came from."""

    epsilon: float
    guesses: int
    correct: int


def one_run(
    scores: np.ndarray,
    member: np.ndarray,
    delta: float = DELTA,
    confidence: float = CONFIDENCE,
    rules: Sequence[Guesses] = RULES,
    seed: int = 0,
) -> EpsilonBound:
    """Epsilon that a run refutes, whatever the mechanism (Steinke, Nasr, Jagielski 2023, arXiv 2305.08846).

    Parameters
    ----------
    scores: [targets], higher for members. Ties are broken at random, so the order of the targets tells nothing.
    member: [targets] of true and false, each drawn by a fair coin of its own.
    delta: the delta of the (epsilon, delta) that is refuted.
    confidence: how sure the bound is; with several rules each has its share of the rest.
    rules: how many guesses to make; fixed before the run.
    seed: breaks ties.

    Returns
    -------
    The largest bound of all rules; epsilon 0 when nothing is refuted.

    Examples
    --------
    >>> member = np.arange(300) % 2 == 0
    >>> round(one_run(member * 1.0, member, rules=[EVERY_TARGET]).epsilon, 1)
    4.6
    """
    return _largest(epsilon_of_guesses, scores, member, delta, confidence, rules, seed)


def one_run_gaussian(
    scores: np.ndarray,
    member: np.ndarray,
    delta: float = DELTA,
    confidence: float = CONFIDENCE,
    rules: Sequence[Guesses] = (MOST_CERTAIN,),
    seed: int = 0,
) -> EpsilonBound:
    """Epsilon at delta of the least noisy Gaussian mechanism that a run does not refute.

    Mahloujifar, Melis, Chaudhuri 2024 (arXiv 2410.22235), for the trade-off functions of Gaussian mechanisms. Far
    tighter than `one_run` where noise is Gaussian, and no bound at all where it is not.

    Parameters are as `one_run`.

    Returns
    -------
    As `one_run`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> member = rng.random(1000) < 0.5
    >>> known = gaussian_epsilon(1.0)
    >>> bound = one_run_gaussian(member + rng.normal(size=1000), member).epsilon
    >>> bool(known / 3 < bound <= known)
    True
    """
    return _largest(gaussian_epsilon_of_guesses, scores, member, delta, confidence, rules, seed)


def clopper_pearson(
    scores: np.ndarray,
    member: np.ndarray,
    delta: float = DELTA,
    confidence: float = CONFIDENCE,
    threshold: float | None = None,
    seed: int = 0,
) -> float:
    """Epsilon from exact bounds on both error rates at one threshold.

    Parameters
    ----------
    scores: [targets], higher for members. NaN ranks lowest.
    member: [targets] of true and false.
    delta: the delta of the (epsilon, delta) that is refuted.
    confidence: how sure the bound is; both error rates share the rest.
    threshold: fixed before the run. None: half of the targets, drawn at random, choose it, and the other half alone
        enter the bound.
    seed: draws the halves.

    Returns
    -------
    max(log((TPR - delta) / FPR), log((TNR - delta) / FNR)), each rate at its worse end; 0 when nothing is refuted.

    Examples
    --------
    >>> member = np.arange(400) % 2 == 0
    >>> round(clopper_pearson(member * 1.0, member, threshold=0.5), 2)
    3.98
    """
    values, truth = _checked(scores, member)
    if threshold is not None:
        return _error_rate_epsilon(values > threshold, truth, delta, confidence)
    rng = np.random.default_rng(seed)
    chooses = np.zeros(len(values), dtype=bool)
    for group in (np.flatnonzero(truth), np.flatnonzero(~truth)):
        chooses[rng.permutation(group)[: len(group) // 2]] = True
    if not chooses.any():
        return 0.0
    best, chosen = -1.0, np.inf
    for candidate in np.unique(np.quantile(values[chooses], np.linspace(0, 1, 101), method="inverted_cdf")):
        bound = _error_rate_epsilon(values[chooses] > candidate, truth[chooses], delta, confidence)
        if bound > best:
            best, chosen = bound, float(candidate)
    return _error_rate_epsilon(values[~chooses] > chosen, truth[~chooses], delta, confidence)


def auc_gaussian(scores: np.ndarray, member: np.ndarray, delta: float = DELTA, confidence: float = CONFIDENCE) -> float:
    """Epsilon at delta of the least noisy Gaussian mechanism that the AUC does not refute.

    Whatever the score, mu-Gaussian privacy keeps the ROC below that of two normals mu apart, whose AUC is
    Phi(mu / sqrt 2). No threshold and no number of guesses has to be chosen.

    Parameters
    ----------
    scores: [targets], higher for members. NaN ranks lowest.
    member: [targets] of true and false.
    delta: the delta of the epsilon that is reported.
    confidence: of the one-sided lower bound of the AUC (DeLong's).

    Returns
    -------
    Epsilon; 0 when nothing is refuted, or with fewer than two members or non-members.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> member = rng.random(1000) < 0.5
    >>> bound = auc_gaussian(member + rng.normal(size=1000), member)
    >>> bool(3.0 < bound < gaussian_epsilon(1.0))
    True
    """
    values, truth = _checked(scores, member)
    members, others = int(truth.sum()), int((~truth).sum())
    if min(members, others) < 2:
        return 0.0
    auc, covariance = auc_covariance(values[None], truth)
    # On the logit scale the normal approximation holds for large AUCs too. With perfect separation the variance is
    # zero, and the exact bound of the smaller group takes over.
    low = float((1 - confidence) ** (1 / min(members, others)))
    if auc[0] < 1:
        sure = 1 - APPROXIMATE * (1 - confidence)
        step = special.ndtri(sure) * np.sqrt(covariance[0, 0]) / (auc[0] * (1 - auc[0]) + 1e-300)
        low = min(low, float(special.expit(special.logit(auc[0]) - step)))
    return gaussian_epsilon(float(np.sqrt(2) * special.ndtri(low)), delta) if low > 0.5 else 0.0


def over_runs(
    runs: Sequence[tuple[Sequence[np.ndarray], np.ndarray]], delta: float = DELTA, confidence: float = CONFIDENCE
) -> float:
    """The largest epsilon that any of several runs refutes by any of its scores, as sure as one run would be alone.

    Parameters
    ----------
    runs: of each its scores, [targets] each, and member [targets]; as for `one_run`.
    delta: as for `one_run`.
    confidence: of the result; each score of each run has its share of the rest.

    Returns
    -------
    Epsilon; 0 when nothing is refuted, or there is nothing.

    Examples
    --------
    >>> member = np.arange(300) % 2 == 0
    >>> alone = over_runs([([member * 1.0], member)])
    >>> over_runs([([member * 1.0, member * 0.0], member)] * 2) < alone
    True
    """
    sure = share(sum(len(scores) for scores, _ in runs), confidence)
    found = [one_run(values, member, delta, sure).epsilon for scores, member in runs for values in scores]
    return max(found, default=0.0)


def share(tried: int, confidence: float = CONFIDENCE) -> float:
    """How sure each of so many bounds must be for all of them to hold together, `confidence` sure."""
    return 1 - (1 - confidence) / max(tried, 1)


def guessed(
    scores: np.ndarray, member: np.ndarray, rules: Sequence[Guesses] = RULES, seed: int = 0
) -> list[tuple[int, int]]:
    """Of each rule how many guesses it makes, and how many of them are correct; parameters are as for `one_run`.

    Examples
    --------
    >>> member = np.arange(300) % 2 == 0
    >>> guessed(member * 1.0, member)
    [(270, 270), (120, 120)]
    """
    values, truth = _checked(scores, member)
    # Members often come first in a file: an order that breaks ties must not know it.
    chance = np.random.default_rng(seed).random(len(values))
    truth = truth[np.lexsort((chance, -values))]
    found = []
    for rule in rules:
        top, bottom = rule.counts(len(truth))
        found.append((top + bottom, int(truth[:top].sum() + (~truth[len(truth) - bottom :]).sum())))
    return found


def of_guesses(
    targets: int, by_rule: Sequence[tuple[int, int]], delta: float = DELTA, confidence: float = CONFIDENCE
) -> float:
    """The bound of `one_run` from what its rules `guessed`."""
    level = (1 - confidence) / max(len(by_rule), 1)
    return max((epsilon_of_guesses(targets, made, right, delta, level) for made, right in by_rule), default=0.0)


def reachable(
    members: int, others: int, delta: float = DELTA, confidence: float = CONFIDENCE, rules: Sequence[Guesses] = RULES
) -> float:
    """The most that `one_run` can show of so many members and non-members: by scores that separate them perfectly.

    Less than the `ceiling` of as many targets: guesses are made by rules that leave some targets out, each rule has its
    share of the error, and where one group is smaller than a rule expects, some of its guesses must be wrong.

    Parameters
    ----------
    members, others: how many there are of each.
    delta, confidence, rules: as for `one_run`.

    Returns
    -------
    Epsilon. Whether a larger one holds cannot be tested with these targets.

    Examples
    --------
    >>> round(reachable(500, 500), 2), round(ceiling(1000), 2)
    (5.46, 5.78)
    """
    counts = [rule.counts(members + others) for rule in rules]
    right = [(top + bottom, min(top, members) + min(bottom, others)) for top, bottom in counts]
    return of_guesses(members + others, right, delta, confidence)


def ceiling(targets: int, delta: float = DELTA, confidence: float = CONFIDENCE) -> float:
    """The most that any one-run audit of so many targets can show: all of them guessed, all guesses correct.

    Parameters
    ----------
    targets: how many there are.
    delta, confidence: as for `one_run`.

    Returns
    -------
    Epsilon. A bound close to it says that there were too few targets, not that epsilon is no larger.

    Examples
    --------
    >>> round(ceiling(300), 1), round(ceiling(1000), 1)
    (4.6, 5.8)
    """
    return epsilon_of_guesses(targets, targets, targets, delta, 1 - confidence)


def _largest(
    bound: Callable[[int, int, int, float, float], float],
    scores: np.ndarray,
    member: np.ndarray,
    delta: float,
    confidence: float,
    rules: Sequence[Guesses],
    seed: int,
) -> EpsilonBound:
    best = EpsilonBound(0.0, 0, 0)
    for guesses, correct in guessed(scores, member, rules, seed):
        epsilon = bound(len(member), guesses, correct, delta, (1 - confidence) / len(rules))
        if epsilon > best.epsilon or best.guesses == 0:
            best = EpsilonBound(epsilon, guesses, correct)
    return best


def _error_rate_epsilon(called: np.ndarray, truth: np.ndarray, delta: float, confidence: float) -> float:
    tail = (1 - confidence) / 2
    missed = _upper(int((truth & ~called).sum()), int(truth.sum()), tail)
    false = _upper(int((~truth & called).sum()), int((~truth).sum()), tail)
    bounds = [(1 - missed - delta, false), (1 - false - delta, missed)]
    return max([float(np.log(rate / error)) for rate, error in bounds if rate > error], default=0.0)


def _upper(hits: int, trials: int, tail: float) -> float:
    return 1.0 if hits == trials else float(special.betaincinv(hits + 1, trials - hits, 1 - tail))


def _checked(scores: np.ndarray, member: np.ndarray) -> tuple[Floats, np.ndarray]:
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(member).astype(bool)
    if values.ndim != 1 or values.shape != truth.shape or len(values) == 0:
        raise InputError(
            f"scores and member must be of the same targets, at least one: {list(values.shape)}, {list(truth.shape)}"
        )
    return np.where(np.isnan(values), -np.inf, values), truth
