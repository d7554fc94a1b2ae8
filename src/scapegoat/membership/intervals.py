"""Intervals that allow for all that was drawn: the threshold as well as the members, the seeds and the targets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from scapegoat.errors import InputError
from scapegoat.membership.delong import auc_covariance
from scapegoat.membership.metrics import LEVEL, Estimate, auc, rate, tpr_at_fpr


def tpr_at_fpr_joint(scores: np.ndarray, member: np.ndarray, fpr: float, level: float = LEVEL) -> Estimate:
    """True positive rate at a false positive rate, with an interval that allows for how the threshold was found.

    The threshold is a quantile of the non-members that were drawn. Two of their order statistics enclose the quantile
    of all non-members (exactly, by binomial tails, whatever the distribution), and the shares of members above these
    two have exact intervals of their own; both together miss with probability 1 - level at most. A bootstrap would
    not do here: at low rates the threshold is one of the largest few scores, which resampling cannot exceed.

    Parameters
    ----------
    scores: [targets], higher for members; NaN ranks lowest.
    member: [targets] of true and false.
    fpr: the false positive rate.
    level: of confidence.

    Returns
    -------
    The share of members found, as `tpr_at_fpr` has it, in its wider interval. The low end is 0 where no order
    statistic is surely above the threshold: with n non-members, where (1 - fpr)^n exceeds (1 - level) / 4.

    Examples
    --------
    >>> member = np.arange(2000) < 1000
    >>> found = tpr_at_fpr_joint(member * 1.0 + np.arange(2000) / 4000, member, 0.1)
    >>> found.value, bool(found.low > 0.99)
    (1.0, True)
    """
    truth = np.asarray(member).astype(bool)
    values = np.where(np.isnan(scores), -np.inf, scores)
    inside, outside = values[truth], np.sort(values[~truth])[::-1]
    value = tpr_at_fpr(scores, truth, fpr).value
    n, tail = len(outside), (1 - level) / 4
    if n == 0 or len(inside) == 0:
        return Estimate(value, 0.0, 1.0)
    # outside[j - 1] lies below the true threshold only if at most j - 1 of n non-members reach it.
    at_most = special.bdtr(np.arange(n + 1.0), n, fpr)
    j = int((at_most[:n] <= tail).sum())
    low = 0.0
    if j > 0:
        low = rate(int((inside > outside[j - 1]).sum()), len(inside), 1 - 2 * tail).low
    # outside[k - 1] lies above it only if at least k of n non-members exceed it.
    k = int((1 - at_most[:n] > tail).sum()) + 1
    above = int((inside > outside[k - 1]).sum()) if k <= n else len(inside)
    high = rate(above, len(inside), 1 - 2 * tail).high
    return Estimate(value, min(low, value), max(high, value))


def over_seeds(runs: Sequence[tuple[np.ndarray, np.ndarray]], level: float = LEVEL) -> Estimate:
    """Mean AUC over runs with different seeds, in an interval for the next seed and the next targets alike.

    Two levels of chance: seeds (a run is one draw of training) and, within a run, targets. The spread between runs
    that have targets of their own holds both, and Student's t allows for how few runs there are. It is taken to be at
    least what the targets alone explain (DeLong's variance). With two runs it is very wide: two runs say little about
    the third. Simulated, it missed the truth at most 9 times in a hundred (five runs, AUCs spread by 0.1); an attempt
    to tell the two levels apart missed it up to 19 times.

    Parameters
    ----------
    runs: scores [targets] and member [targets] of each run; each run has targets of its own.
    level: of confidence.

    Returns
    -------
    The mean. With one run the interval is over targets alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> member = np.arange(200) < 100
    >>> found = over_seeds([(rng.normal(size=200) + member, member) for _ in range(5)])
    >>> bool(found.low < 0.76 < found.high)
    True
    """
    if not runs:
        raise InputError("runs: at least one is needed")
    if len(runs) == 1:
        return auc(np.asarray(runs[0][0]), np.asarray(runs[0][1]))
    found = [auc_covariance(np.asarray(s, dtype=np.float64)[None], _both_groups(m)) for s, m in runs]
    values = np.array([a[0] for a, _ in found])
    within = float(np.mean([c[0, 0] for _, c in found]))
    count = len(values)
    # The spread between runs holds both levels; few runs may agree by chance, but never more than their targets allow.
    variance = max(float(values.var(ddof=1)), within) / count
    step = float(special.stdtrit(count - 1, (1 + level) / 2)) * np.sqrt(variance)
    mean = float(values.mean())
    return Estimate(mean, max(mean - step, 0.0), min(mean + step, 1.0))


def _both_groups(member: np.ndarray) -> np.ndarray:
    truth = np.asarray(member).astype(bool)
    if min(truth.sum(), (~truth).sum()) < 2:
        raise InputError("member: every run needs at least two members and two non-members")
    return truth
