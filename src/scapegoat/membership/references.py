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
FEWEST = 20
"""Targets from which on others say what to expect of one."""
LEAST, MOST = 0.01, 100.0
LEAST_BETWEEN = 0.05
"""Of the scatter around what is expected, what targets differ by at the least."""


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


class Expected(NamedTuple):
    """What the other targets say to expect of one: its mean [targets], and how many references that is worth."""

    mean: Floats
    weight: float


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

    @property
    def freedom(self) -> float:
        """How many deviations from a target's mean are known: none where no target has two references."""
        return float((self.count - 1).clip(0).sum())

    def pooled_variance(self) -> float:
        """Variance within targets, pooled over all of them; with one reference each, the variance between targets.

        The latter is too wide, which makes a score cautious for every target alike.
        """
        if self.freedom > 0:
            return float(self.squares.sum() / self.freedom)
        means = self.mean[self.known]
        return float(means.var()) if len(means) else 0.0

    def variance(self, enough: int) -> Floats:
        """Variance per target [targets]: its own where `enough` references speak of it, the pooled one elsewhere."""
        own = self.squares / (self.count - 1).clip(1)
        return np.where(self.count >= max(enough, 2), own, self.pooled_variance()).clip(NARROWEST**2)

    def shrunk(self, prior: Expected, enough: int) -> tuple[Floats, Floats]:
        """Mean and variance per target [targets]: its own where `enough` references speak of it.

        Elsewhere the mean lies between what is expected and its own, by how much each is worth, and the variance, the
        pooled one, is that of one more margin around a mean that is not known exactly.
        """
        worth = prior.weight + self.count
        few = self.count < max(enough, 2)
        mean = np.where(few, (prior.weight * prior.mean + self.count * self.mean) / worth, self.mean)
        return mean, np.where(few, 1 + 1 / worth, 1.0) * self.variance(enough)


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


def expected(kind: Moments, other: Moments | None = None) -> Expected | None:
    """What targets suggest of each other: the mean margin under one kind of reference, by that under the other kind.

    A line through all targets; without the other kind, their average. It is worth the variance within targets over that
    between them, around the line; the latter is what is left of the scatter once the draw of each mean is taken away.
    None with fewer than `FEWEST` targets.

    Examples
    --------
    >>> margins = np.random.default_rng(0).normal(np.linspace(0, 3, 50), 1, (2, 50))
    >>> round(expected(moments(margins, np.ones_like(margins, bool))).weight)
    1
    """
    both = kind.known if other is None else kind.known & other.known
    count = int(both.sum())
    if count < FEWEST:
        return None
    average = float(kind.mean[kind.known].mean())
    means, freedom = np.full(len(kind.mean), average), count - 1
    if other is not None:
        x, y = other.mean[both], kind.mean[both]
        away = x - x.mean()
        slope = float(away @ (y - y.mean()) / (away @ away)) if np.ptp(x) > NARROWEST else 0.0
        start = float(y.mean() - slope * x.mean())
        means, freedom = np.where(other.known, start + slope * other.mean, average), count - 2
    total = float(((kind.mean - means)[both] ** 2).sum() / freedom)
    within = kind.pooled_variance()
    between = max(total - within * float((1 / kind.count[both]).mean()), LEAST_BETWEEN * total)
    return Expected(means, max(within / between, LEAST) if between > within / MOST else MOST)


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
