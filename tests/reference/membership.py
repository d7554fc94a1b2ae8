"""Membership metrics, the slow and obvious way."""

from __future__ import annotations

from math import comb

import numpy as np


def auc(scores, member):
    """Count every (member, non-member) pair."""
    wins = pairs = 0.0
    for s, m in zip(scores, member, strict=True):
        for t, k in zip(scores, member, strict=True):
            if m and not k:
                pairs += 1
                wins += 1.0 if s > t else 0.5 if s == t else 0.0
    return wins / pairs if pairs else 0.5


def tpr_at_fpr(scores, member, fpr):
    """Try every threshold, also one below all scores, and keep the best that lets few enough non-members through."""
    members, others = sum(member), len(member) - sum(member)
    best = 0.0
    for threshold in [*scores, float("-inf")]:
        for strict in (True, False):
            called = [s > threshold if strict else s >= threshold for s in scores]
            false = sum(c and not m for c, m in zip(called, member, strict=True))
            if others == 0 or false <= fpr * others + 1e-9:
                true = sum(c and m for c, m in zip(called, member, strict=True))
                best = max(best, true / members if members else 0.0)
    return best


def best_threshold_accuracy(scores, member):
    """Try every threshold."""
    best = 0
    for threshold in [*scores, float("inf")]:
        best = max(best, sum((s >= threshold) == m for s, m in zip(scores, member, strict=True)))
    return best / len(member)


def binomial_tail(hits, trials, p):
    """P(X >= hits) for X ~ Binomial(trials, p)."""
    return sum(comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(hits, trials + 1))


def auc_interval(scores, member, resamples, seed=0):
    """Members and others drawn again with replacement, every pair compared, 2.5% cut off at either end."""
    inside, outside = np.sort(scores[member]), np.sort(scores[~member])
    rng = np.random.default_rng(seed)
    weight_in = rng.multinomial(len(inside), np.full(len(inside), 1 / len(inside)), size=resamples)
    weight_out = rng.multinomial(len(outside), np.full(len(outside), 1 / len(outside)), size=resamples)
    won = (inside[:, None] > outside[None, :]) + 0.5 * (inside[:, None] == outside[None, :])
    pairs = len(inside) * len(outside)
    return np.quantile([a @ won @ b / pairs for a, b in zip(weight_in, weight_out, strict=True)], [0.025, 0.975])
