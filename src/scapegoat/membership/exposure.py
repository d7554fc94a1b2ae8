"""What leakage means to a person: how sure an adversary may be, and of whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from scapegoat.errors import InputError
from scapegoat.membership.metrics import LEVEL, Estimate, rate
from scapegoat.membership.scoring import Floats, midranks

PRIORS = (0.1, 0.01, 0.001)
FOLDS = 5


@dataclass(frozen=True)
class AtPrior:
    """What a call "member" is worth to an adversary who believed with `prior`: precision, and precision / prior."""

    prior: float
    precision: Estimate
    lift: Estimate


def at_priors(
    found: int, members: int, false: int, others: int, priors: Sequence[float] = PRIORS, level: float = LEVEL
) -> list[AtPrior]:
    """Precision and lift of calls "member" where members are as rare as each prior says.

    Audits have as many members as non-members; the world has not. Precision follows from the two rates by Bayes' rule.

    Parameters
    ----------
    found: members called members, of `members`.
    members: how many there are.
    false: non-members called members, of `others`.
    others: how many there are.
    priors: shares of members among the records an adversary would try.
    level: of confidence; the two exact intervals share the rest, so they hold together.

    Returns
    -------
    One entry per prior. Without any call nothing is known of their precision: the prior, between 0 and 1.

    Examples
    --------
    >>> [round(entry.precision.value, 3) for entry in at_priors(50, 100, 1, 100)]
    [0.847, 0.336, 0.048]
    """
    if not (0 <= found <= members and 0 <= false <= others):
        raise InputError(f"calls exceed the targets: {found} of {members} members, {false} of {others} non-members")
    if not all(0 < prior < 1 for prior in priors):
        raise InputError(f"priors must lie between 0 and 1: {list(priors)}")
    each = 1 - (1 - level) / 2
    tpr, fpr = rate(found, members, each), rate(false, others, each)
    entries = []
    for prior in priors:
        value = _precision(tpr.value, fpr.value, prior) if found + false else prior
        precision = Estimate(value, _precision(tpr.low, fpr.high, prior), _precision(tpr.high, fpr.low, prior))
        lift = Estimate(value / prior, precision.low / prior, precision.high / prior)
        entries.append(AtPrior(prior, precision, lift))
    return entries


def _precision(tpr: float, fpr: float, prior: float) -> float:
    called = tpr * prior + fpr * (1 - prior)
    return tpr * prior / called if called > 0 else 0.0


def posteriors(scores: np.ndarray, member: np.ndarray, prior: float = 0.5, seed: int = 0) -> Floats:
    """Probability of being a member, per target, for an adversary who knows how scores of others turned out.

    A logistic curve in the normal score of the target's rank is fitted to the membership of the other folds (so never
    to the target's own), and moved from the audit's share of members to `prior`. No target is called likelier or less
    likely by more than so many non-members, or members, could show: a curve has no end, the evidence has.

    Parameters
    ----------
    scores: [targets], higher for members; NaN ranks lowest.
    member: [targets] of true and false.
    prior: the adversary's belief before it looked.
    seed: draws the folds.

    Returns
    -------
    [targets]; the prior everywhere with fewer than two members or non-members.

    Examples
    --------
    >>> member = np.arange(100) < 50
    >>> found = posteriors(np.random.default_rng(0).normal(size=100) + 2 * member, member)
    >>> bool(found[member].mean() > 0.6 > 0.4 > found[~member].mean())
    True
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(member).astype(bool)
    if values.shape != truth.shape or values.ndim != 1:
        raise InputError("scores and member must be of the same targets")
    if not 0 < prior < 1:
        raise InputError(f"prior must lie between 0 and 1: {prior}")
    fewest = int(min(truth.sum(), (~truth).sum()))
    if fewest < 2:
        return np.full(len(truth), prior)
    place = special.ndtri((midranks(values) - 0.5) / len(values))[:, None]
    logit = np.zeros(len(truth))
    for train, test in StratifiedKFold(min(FOLDS, fewest), shuffle=True, random_state=seed).split(place, truth):
        fitted = LogisticRegression(C=1.0).fit(place[train], truth[train])
        share = truth[train].mean()
        logit[test] = fitted.decision_function(place[test]) - special.logit(share)
    logit = logit.clip(-np.log(truth.sum() + 1), np.log((~truth).sum() + 1))
    return np.asarray(special.expit(logit + special.logit(prior)), dtype=np.float64)
