"""Figures that allow for having tried several scores, or looked at several slices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from scapegoat.errors import InputError
from scapegoat.membership.delong import auc_covariance
from scapegoat.membership.guards import permutation_p
from scapegoat.membership.metrics import LEVEL, Estimate, auc_value
from scapegoat.membership.scoring import Floats

DRAWS = 20_000


@dataclass(frozen=True)
class Worst:
    """The score that tells most, its AUC in an interval that pays for the others, and the p value that does."""

    name: str
    estimate: Estimate
    p: float


def worst_score(scores: Mapping[str, np.ndarray], member: np.ndarray, level: float = LEVEL, seed: int = 0) -> Worst:
    """The score with the largest AUC, corrected for having been picked.

    The largest of several figures is too large on average. All scores are measured on the same targets, so their
    errors go together; DeLong's covariance says how much, and simulated errors of all scores at once give the factor
    by which every interval is widened. The interval is for the largest true AUC of all scores.

    Parameters
    ----------
    scores: name to [targets], higher for members.
    member: [targets] of true and false.
    level: of confidence.
    seed: of the simulation and the permutations.

    Returns
    -------
    Name, AUC with its interval, and the permutation p value of the largest AUC.

    Examples
    --------
    >>> member = np.arange(100) < 50
    >>> noise = np.random.default_rng(0).normal(size=100)
    >>> found = worst_score({"good": noise + member, "blind": noise}, member)
    >>> found.name, found.p
    ('good', 0.001)
    """
    if not scores:
        raise InputError("scores: at least one is needed")
    names = list(scores)
    rows, truth = np.stack([np.asarray(scores[n], dtype=np.float64) for n in names]), np.asarray(member).astype(bool)
    values = np.array([auc_value(row, truth) for row in rows])
    best = int(values.argmax())
    if min(truth.sum(), (~truth).sum()) < 2:
        return Worst(names[best], Estimate(float(values[best]), 0.0, 1.0), 1.0)
    low, high = simultaneous(rows, truth, level, seed)
    largest = Estimate(float(values[best]), float(low.max()), float(high.max()))
    return Worst(names[best], largest, permutation_p(rows, truth, seed=seed))


def simultaneous(rows: np.ndarray, member: np.ndarray, level: float = LEVEL, seed: int = 0) -> tuple[Floats, Floats]:
    """Intervals of the AUCs of several scores [scores, targets] that hold all at once: low [scores], high [scores].

    On the logit scale, which keeps them within 0 and 1. With perfect separation the variance is zero; the exact bound
    of the smaller group, Bonferroni's share of it, takes its place.
    """
    values, covariance = auc_covariance(rows, member)
    spread = np.sqrt(np.diag(covariance).clip(0))
    scale = np.where(spread > 0, spread, 1.0)
    correlation = covariance / np.outer(scale, scale)
    np.fill_diagonal(correlation, 1.0)
    weights, vectors = np.linalg.eigh(correlation)
    draws = np.random.default_rng(seed).normal(size=(DRAWS, len(rows))) @ (vectors * np.sqrt(weights.clip(0))).T
    factor = float(np.quantile(np.abs(draws).max(1), level))
    inner = values.clip(1e-12, 1 - 1e-12)
    step = factor * spread / (inner * (1 - inner))
    centre = special.logit(inner)
    smaller = int(min(member.sum(), (~member).sum()))
    cautious = ((1 - level) / (2 * len(rows))) ** (1 / smaller)
    low = np.where(values >= 1, cautious, np.minimum(special.expit(centre - step), cautious))
    high = np.where(values <= 0, 1 - cautious, np.maximum(special.expit(centre + step), 1 - cautious))
    return np.where(values <= 0, 0.0, low), np.where(values >= 1, 1.0, high)


def holm(p_values: Sequence[float]) -> list[float]:
    """P values that may all be read at once (Holm 1979).

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min((len(p_values) - rank) * p_values[i], 1.0))
        adjusted[i] = largest
    return adjusted


@dataclass(frozen=True)
class Slice:
    """The leakage of one slice of the targets; interval and p value hold for all slices at once."""

    name: Hashable
    members: int
    others: int
    auc: Estimate
    p: float


def by_slice(
    scores: np.ndarray,
    member: np.ndarray,
    slices: np.ndarray,
    against_all: bool = False,
    level: float = LEVEL,
    seed: int = 0,
    tested: bool = True,
) -> list[Slice]:
    """AUC of every slice (class, client), with intervals by Bonferroni and permutation p values by Holm.

    Parameters
    ----------
    scores: [targets], higher for members.
    member: [targets] of true and false.
    slices: [targets], the slice of each target.
    against_all: compare a slice's members with all non-members, not with the slice's own: for clients, who own
        members only.
    level: of confidence, for all slices together.
    seed: of the permutations.
    tested: whether to compute p values, which takes thousands of permutations per slice; without, they are 1.

    Returns
    -------
    The slices that hold a member, the most exposed first. One without two members and two non-members has AUC 0.5 in
    [0, 1], p 1.

    Examples
    --------
    >>> member = np.arange(80) % 2 == 0
    >>> noise = np.random.default_rng(0).normal(size=80)
    >>> found = by_slice(noise + 3 * member * (np.arange(80) < 40), member, np.repeat(["a", "b"], 40))
    >>> [(s.name, s.p < 0.05) for s in found]
    [('a', True), ('b', False)]
    """
    values, truth, labels = np.asarray(scores, dtype=np.float64), np.asarray(member).astype(bool), np.asarray(slices)
    if not values.shape == truth.shape == labels.shape or values.ndim != 1:
        raise InputError("scores, member and slices must be of the same targets")
    names = np.unique(labels[truth]).tolist()
    share = 1 - (1 - level) / max(len(names), 1)
    # With few permutations no p value would survive the correction.
    deals = 1000 * max(len(names), 1) - 1
    found = []
    for name in names:
        inside = truth & (labels == name)
        outside = ~truth & (against_all | (labels == name))
        chosen = inside | outside
        members, others = int(inside.sum()), int(outside.sum())
        if min(members, others) < 2:
            found.append(Slice(name, members, others, Estimate(0.5, 0.0, 1.0), 1.0))
            continue
        low, high = simultaneous(values[None, chosen], inside[chosen], share, seed)
        estimate = Estimate(auc_value(values[chosen], inside[chosen]), float(low[0]), float(high[0]))
        p = 1.0
        if tested:
            p = permutation_p(values[chosen], inside[chosen], permutations=min(deals, 9999), seed=seed)
        found.append(Slice(name, members, others, estimate, p))
    corrected = holm([s.p for s in found])
    joint = [Slice(s.name, s.members, s.others, s.auc, p) for s, p in zip(found, corrected, strict=True)]
    return sorted(joint, key=lambda s: -s.auc.value)
