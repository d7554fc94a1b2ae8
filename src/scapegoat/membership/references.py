"""What reference federations say about a target: mean and spread of its margin when it was in, and when out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scapegoat.membership.scoring import Bools, Floats, checked_margins, checked_references, limited

SURELY = 3.0
"""Standard deviations by which correlations must differ before it is said that they do."""
NARROWEST = 1e-12
"""No standard deviation is smaller: references that agree exactly must not make a score infinite."""


class Compared(NamedTuple):
    """An attacked run beside its references: what a score that needs references begins with."""

    last: Floats
    """The targets' margins after the last round [targets], as they were observed."""
    margin: Floats
    """The same, finite [targets]."""
    values: Floats
    """The references' margins [references, targets]."""
    trained: Bools
    """Which references trained on a target [references, targets]."""
    out: Bools
    """Which did not [references, targets]."""

    @classmethod
    def of(cls, margins: np.ndarray, references: np.ndarray, included: np.ndarray | None) -> Compared:
        """The arrays as a user gives them, checked, or an InputError."""
        last = checked_margins(margins)[-1]
        return cls(last, limited(np.nan_to_num(last)), *checked_references(references, included, len(last)))


def agreement(margins: np.ndarray, references: np.ndarray) -> float:
    """How well references foretell the margins of an attacked run, beside how well they foretell each other's.

    Which records are hard is much the same in every federation that trains alike: the mean margin of the references
    goes with the margin of the run as it goes with that of one more reference. Where an attack decides the margins it
    does not, and a score that allows for how hard a record is takes noise away from the attacker's signal. Nobody needs
    to know who the members are to see it.

    Parameters
    ----------
    margins: [rounds, targets] of the attacked run; the last round counts.
    references: [references, targets] or [references, rounds, targets].

    Returns
    -------
    The ratio of the two correlations: about 1 where the references fit. 1 as well where nothing can be said: fewer than
    two references, or correlations that so many targets cannot tell apart.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> hard = rng.normal(size=500)
    >>> references = hard + 0.5 * rng.normal(size=(4, 500))
    >>> agreement(hard[None] + 0.5 * rng.normal(size=(1, 500)), references) > 0.9
    True
    >>> agreement(rng.normal(size=(1, 500)), references) < 0.2
    True
    """
    last, margin, values, trained, out = Compared.of(margins, references, None)
    usable = np.isfinite(last) & (trained | out).all(0)
    if len(values) < 2 or usable.sum() < 10:
        return 1.0
    margin, values = margin[usable], values[:, usable]
    among = float(np.mean([_correlation(row, np.delete(values, k, 0).mean(0)) for k, row in enumerate(values)]))
    found = _correlation(margin, values.mean(0))
    apart = (np.arctanh(min(among, 0.9999)) - np.arctanh(min(found, 0.9999))) * np.sqrt(usable.sum() - 3)
    return found / among if among > 0 and apart > SURELY else 1.0


def _correlation(one: Floats, other: Floats) -> float:
    if np.ptp(one) <= NARROWEST or np.ptp(other) <= NARROWEST:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


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
