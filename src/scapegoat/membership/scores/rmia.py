"""RMIA: a target against the records around it."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from scipy import special

from scapegoat.errors import InputError
from scapegoat.membership.scoring import (
    Bools,
    Evidence,
    Floats,
    Score,
    checked_margins,
    checked_references,
    register,
    settled,
)


def rmia(
    margins: np.ndarray,
    references: np.ndarray,
    included: np.ndarray | None = None,
    population: np.ndarray | None = None,
    population_references: np.ndarray | None = None,
    gamma: float = 2.0,
    offline_a: float = 0.3,
) -> Floats:
    """Share of population records z that a target x beats: LR(x, z) >= gamma.

    Zarifzadeh, Liu, Shokri 2024 (arXiv 2312.03262): LR(x, z) = (P(x | model) / P(x)) / (P(z | model) / P(z)), where
    P(x | model) is the confidence in the true label, here the logistic function of the margin, and P(x) its mean over
    models that did and did not train on x. Where no reference trained on x, that mean is ((1 + a) P_out + 1 - a) / 2.

    Parameters
    ----------
    margins: [rounds, targets] of the attacked run; the last round counts.
    references: [references, targets] or [references, rounds, targets].
    included: [references, targets], which references trained on the target. None: none did.
    population: [rounds, records], margins of records that are not members. None: the other targets serve.
    population_references: [references, records] or [references, rounds, records]; needed with `population`.
    gamma: how much larger the target's ratio must be; at least 1.
    offline_a: the paper's a, between 0 and 1: how far the confidence without x tells the confidence with x.

    Returns
    -------
    [targets], between 0 and 1. A lone target without a population has nothing to beat and scores 0.

    Examples
    --------
    >>> references = np.zeros((2, 3))
    >>> rmia(np.array([[4.0, 0.0, -4.0]]), references, gamma=1.5)
    array([1. , 0.5, 0. ])
    """
    last = checked_margins(margins)[-1]
    ratio = _log_ratio(last, *checked_references(references, included, len(last)), offline_a)
    if (population is None) != (population_references is None):
        raise InputError("population and population_references go together: give both or neither")
    needed = ratio - np.log(gamma)
    if population is not None and population_references is not None:
        others = checked_margins(population)[-1]
        against = np.sort(_log_ratio(others, *checked_references(population_references, None, len(others)), offline_a))
        beaten = np.searchsorted(against, needed, side="right")
        share = beaten / len(against)
    else:
        beaten = np.searchsorted(np.sort(ratio), needed, side="right")
        # At gamma 1 a target would beat itself.
        share = (beaten - (ratio <= needed)) / max(len(ratio) - 1, 1)
    return settled(share, last)


def _log_ratio(last: Floats, values: Floats, trained: Bools, out: Bools, a: float) -> Floats:
    """log P(x | model) - log P(x); a margin of NaN counts as confidence 0."""
    confidence = special.expit(values)
    inside, outside = _mean(confidence, trained), _mean(confidence, out)
    estimated = ((1 + a) * outside + (1 - a)) / 2
    prior = np.where(trained.any(0), np.where(out.any(0), (inside + outside) / 2, inside), estimated)
    # Without any reference the prior says nothing: the average over the other records stands in.
    known = trained.any(0) | out.any(0)
    if not known.any():
        raise InputError("references: no margin in them is finite")
    prior = np.where(known, prior, prior[known].mean())
    observed = special.log_expit(np.where(np.isnan(last), -np.inf, last))
    return np.asarray(observed - np.log(prior.clip(1e-300)), dtype=np.float64)


def _mean(values: Floats, used: Bools) -> Floats:
    return np.asarray(np.where(used, values, 0.0).sum(0) / used.sum(0).clip(1), dtype=np.float64)


@register("rmia")
class RMIA(Score):
    """RMIA: share of records whose likelihood ratio the target's exceeds gamma times."""

    needs_references: ClassVar[bool] = True

    gamma: Annotated[float, Field(ge=1)] = 2.0
    """How much larger the target's likelihood ratio must be."""
    offline_a: Annotated[float, Field(ge=0, le=1)] = 0.3
    """How far the confidence of references without a record tells that of references with it."""

    def score(self, seen: Evidence) -> Floats:
        """See `rmia`."""
        margins, references = seen.need("margins"), seen.need("references")
        around = seen.population, seen.population_references
        return rmia(margins, references, seen.included, *around, gamma=self.gamma, offline_a=self.offline_a)
