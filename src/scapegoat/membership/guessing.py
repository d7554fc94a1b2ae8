"""What correct guesses say of epsilon: the arithmetic behind the bounds of one run, without scores or targets."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import optimize, special

from scapegoat.membership.scoring import Floats

DELTA = 1e-5


@lru_cache(maxsize=65536)
def epsilon_of_guesses(targets: int, guesses: int, correct: int, delta: float, level: float) -> float:
    """Largest epsilon refuted at `level` by so many correct guesses (Theorem 5.2 of Steinke et al.)."""
    if correct == 0:
        return 0.0
    # Without delta the exact (Clopper-Pearson) lower end of the rate is the answer; delta can only lower it.
    high = float(special.logit(special.betaincinv(correct, guesses - correct + 1, level)))
    if high <= 0 or _tail(targets, guesses, correct, 0.0, delta) >= level:
        return 0.0

    def excess(epsilon: float) -> float:
        return _tail(targets, guesses, correct, epsilon, delta) - level

    return high if excess(high) <= 0 else float(optimize.brentq(excess, 0.0, high, xtol=1e-9))


def _tail(targets: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound on the probability of at least so many correct guesses under (epsilon, delta)-differential privacy."""
    p = float(special.expit(epsilon))
    at_least = special.bdtrc(np.arange(correct, -1, -1) - 1.0, guesses, p)
    steps = np.arange(1, correct + 1)
    slope = float(((at_least[1:] - at_least[0]) / steps).max(initial=0.0))
    return min(float(at_least[0]) + 2 * targets * delta * slope, 1.0)


@lru_cache(maxsize=65536)
def gaussian_epsilon_of_guesses(targets: int, guesses: int, correct: int, delta: float, level: float) -> float:
    """Epsilon at `delta` of the largest mu whose Gaussian mechanism so many correct guesses refute at `level`."""
    low, high = 0.0, 64.0
    if guesses == 0 or not _refuted(np.zeros(1), targets, guesses, correct, level)[0]:
        return 0.0
    for _ in range(6):
        # Refuted below, possible above: a grid at a time instead of a bisection, for the recursion is vectorised.
        grid = np.linspace(low, high, 34)
        refuted = int(_refuted(grid, targets, guesses, correct, level).sum())
        low, high = float(grid[max(refuted - 1, 0)]), float(grid[min(refuted, len(grid) - 1)])
    return gaussian_epsilon(low, delta)


def _refuted(mu: Floats, targets: int, guesses: int, correct: int, level: float) -> np.ndarray:
    """Whether each mu is refuted: Algorithm 3 of Mahloujifar et al. for a binary secret."""
    r = np.full(len(mu), level * correct / targets)
    h = np.full(len(mu), level * (guesses - correct) / targets)
    for i in range(correct - 1, -1, -1):
        grown = np.maximum(h, special.ndtr(special.ndtri(r) - mu))
        if (grown == h).all():
            break
        r = np.minimum(r + i / (guesses - i) * (grown - h), 1.0)
        h = grown
    return np.asarray(r + h > guesses / targets)


def gaussian_epsilon(mu: float, delta: float = DELTA) -> float:
    """Epsilon at `delta` of the Gaussian mechanism whose outputs lie mu standard deviations apart.

    Balle and Wang 2018: delta = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu).

    Examples
    --------
    >>> round(gaussian_epsilon(1.0), 3)
    4.377
    """
    if mu <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        first = special.ndtr(mu / 2 - epsilon / mu)
        return float(first - np.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)) - delta)

    if excess(0.0) <= 0:
        return 0.0
    return float(optimize.brentq(excess, 0.0, mu * (mu / 2 - special.ndtri(delta)) + 1.0, xtol=1e-9))
