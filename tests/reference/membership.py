"""Membership metrics, the slow and obvious way."""

from __future__ import annotations

from math import comb


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
