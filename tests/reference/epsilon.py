"""Epsilon bounds as their papers write them: sums, loops and bisections."""

from __future__ import annotations

import math
from statistics import NormalDist

from tests.reference.membership import binomial_tail

NORMAL = NormalDist()


def bisect(refuted, low=0.0, high=60.0):
    """Largest epsilon that is refuted."""
    if not refuted(low):
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def one_run(targets, guesses, correct, delta, level):
    """Steinke, Nasr, Jagielski 2023, Theorem 5.2."""

    def refuted(epsilon):
        p = 1 / (1 + math.exp(-epsilon))
        beta = binomial_tail(correct, guesses, p)
        alpha = max([(binomial_tail(correct - i, guesses, p) - beta) / i for i in range(1, correct + 1)], default=0.0)
        return beta + 2 * targets * delta * alpha < level

    return bisect(refuted)


def gaussian_delta(mu, epsilon):
    def upper_tail(z):
        return math.erfc(z / math.sqrt(2)) / 2

    return upper_tail(epsilon / mu - mu / 2) - math.exp(epsilon) * upper_tail(epsilon / mu + mu / 2)


def gaussian_epsilon(mu, delta):
    return bisect(lambda epsilon: gaussian_delta(mu, epsilon) > delta)


def one_run_gaussian(targets, guesses, correct, delta, level):
    """Mahloujifar, Melis, Chaudhuri 2024: bounds r and h on correct and wrong guesses, from all correct downwards."""

    def inverse_blow_up(x, mu):
        return 0.0 if x <= 0 else 1.0 if x >= 1 else NORMAL.cdf(NORMAL.inv_cdf(x) - mu)

    def refuted(mu):
        h = [0.0] * (correct + 1)
        r = [0.0] * (correct + 1)
        r[correct] = level * correct / targets
        h[correct] = level * (guesses - correct) / targets
        for i in range(correct - 1, -1, -1):
            h[i] = max(h[i + 1], inverse_blow_up(r[i + 1], mu))
            r[i] = min(r[i + 1] + i / (guesses - i) * (h[i] - h[i + 1]), 1.0)
        return r[0] + h[0] > guesses / targets

    mu = bisect(refuted, 0.0, 64.0)
    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def clopper_pearson(called, member, delta, confidence):
    """At a threshold given: both error rates at their upper ends, each found by bisection."""

    def upper(hits, trials):
        tail = (1 - confidence) / 2
        if hits == trials:
            return 1.0
        return bisect(lambda p: 1 - binomial_tail(hits + 1, trials, p) > tail, 0.0, 1.0)

    inside = [c for c, m in zip(called, member, strict=True) if m]
    outside = [c for c, m in zip(called, member, strict=True) if not m]
    missed, false = upper(len(inside) - sum(inside), len(inside)), upper(sum(outside), len(outside))
    best = 0.0
    for rate, error in ((1 - missed - delta, false), (1 - false - delta, missed)):
        if rate > 0:
            best = max(best, math.log(rate / error))
    return best


def auc_covariance(first, second, member):
    """DeLong's covariance of two AUCs from every pair."""
    inside = [i for i, m in enumerate(member) if m]
    outside = [i for i, m in enumerate(member) if not m]

    def win(score, i, j):
        return 1.0 if score[i] > score[j] else 0.5 if score[i] == score[j] else 0.0

    def covariance(a, b):
        mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
        return sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / (len(a) - 1)

    v10 = [[sum(win(s, i, j) for j in outside) / len(outside) for i in inside] for s in (first, second)]
    v01 = [[sum(win(s, i, j) for i in inside) / len(inside) for j in outside] for s in (first, second)]
    return covariance(*v10) / len(inside) + covariance(*v01) / len(outside)
