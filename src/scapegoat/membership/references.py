"""What reference federations say about a target: mean and spread of its margin when it was in, and when out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scapegoat.membership.scoring import Bools, Floats

NARROWEST = 1e-12
"""No standard deviation is smaller: references that agree exactly must not make a score infinite."""


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations per target [targets], over the references that qualify."""

    count: Floats
    mean: Floats
    squares: Floats

    @property
    def known(self) -> Bools:
        """Targets that at least one reference speaks of."""
        return np.asarray(self.count > 0)

    def pooled_variance(self) -> float:
        """Variance within targets, pooled over all of them; with one reference each, the variance between targets.

        The latter is too wide, which makes a score cautious for every target alike.
        """
        freedom = float((self.count - 1).clip(0).sum())
        if freedom > 0:
            return float(self.squares.sum() / freedom)
        means = self.mean[self.known]
        return float(means.var()) if len(means) else 0.0

    def variance(self, enough: int) -> Floats:
        """Variance per target [targets]: its own where `enough` references speak of it, the pooled one elsewhere."""
        own = self.squares / (self.count - 1).clip(1)
        return np.where(self.count >= max(enough, 2), own, self.pooled_variance()).clip(NARROWEST**2)


def moments(values: Floats, used: Bools) -> Moments:
    """Moments per target of `values` [references, targets] where `used` [references, targets]. Unknown means are 0.

    Examples
    --------
    >>> found = moments(np.array([[1.0, 5.0], [3.0, 7.0]]), np.array([[True, False], [True, True]]))
    >>> found.count, found.mean, found.squares
    (array([2., 1.]), array([2., 7.]), array([2., 0.]))
    """
    count = used.sum(0).astype(np.float64)
    mean = np.where(used, values, 0.0).sum(0) / count.clip(1)
    squares = np.where(used, (values - mean) ** 2, 0.0).sum(0)
    return Moments(count, mean, squares)


def completed(inside: Moments, outside: Moments) -> tuple[Floats, Floats, float]:
    """Means in and out for every target, and the average shift; a mean that is missing is the other one, shifted.

    A target that no reference speaks of at all gets the average of each.
    """
    both = inside.known & outside.known
    if both.any():
        shift = float((inside.mean - outside.mean)[both].mean())
    else:
        shift = _average(inside) - _average(outside)
    mean_in = np.where(inside.known, inside.mean, np.where(outside.known, outside.mean + shift, _average(inside)))
    mean_out = np.where(outside.known, outside.mean, np.where(inside.known, inside.mean - shift, _average(outside)))
    return mean_in, mean_out, shift


def _average(found: Moments) -> float:
    return float(found.mean[found.known].mean()) if found.known.any() else 0.0
