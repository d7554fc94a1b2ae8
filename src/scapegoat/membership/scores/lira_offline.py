"""LiRA with references that never saw the target."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from scapegoat.errors import InputError
from scapegoat.membership.references import Compared, expected, moments
from scapegoat.membership.scoring import Evidence, Floats, Score, register, settled


def lira_offline(
    margins: np.ndarray, references: np.ndarray, included: np.ndarray | None = None, enough: int = 16
) -> Floats:
    """How many standard deviations a target's margin lies above what it is when the target was not trained on.

    Carlini et al. 2022 (arXiv 2112.03570), section VI: a Gaussian per target is fitted to the logit-scaled confidence,
    here the margin, of the references that were trained without it, and the score is 1 - Pr[Z > margin]. The z value
    that is returned orders targets as that probability does, but does not saturate at 1.

    Of few references a mean is a poor guess. A target with fewer than `enough` has the variance pooled over all
    targets, as the paper says, and a mean between its own and that of all targets (`references.expected`). The latter
    is this project's; with enough references, or fewer than 20 targets, nothing of it is left.

    Parameters
    ----------
    margins: [rounds, targets] of the attacked run; the last round counts.
    references: [references, targets] or [references, rounds, targets].
    included: [references, targets], which references trained on the target and are left out. None: none did.
    enough: a target's own mean and variance are used from so many references on.

    Returns
    -------
    [targets]. A target whose every reference trained on it is compared with all the other targets.

    Examples
    --------
    >>> references = np.array([[0.0, 4.0], [2.0, 6.0]])
    >>> lira_offline(np.array([[3.0, 5.0]]), references).round(3)
    array([1.414, 0.   ])
    """
    last, margin, values, _, out = Compared.of(margins, references, included)
    if not out.any():
        raise InputError("references: every one of them trained on every target; some must have been trained without")
    found = moments(values, out)
    everything = values[out]
    mean = np.where(found.known, found.mean, everything.mean())
    variance = np.where(found.known, found.variance(enough), max(float(everything.var()), found.pooled_variance()))
    if found.freedom and (prior := expected(found)) is not None:
        mean, variance = found.shrunk(prior, enough)
    spread = np.sqrt(variance).clip(1e-12)
    return settled((margin - mean) / spread, last)


@register("lira_offline")
class LiraOffline(Score):
    """LiRA from references trained without the target: one Gaussian per target."""

    needs_references: ClassVar[bool] = True

    enough: Annotated[int, Field(ge=2)] = 16
    """References from which on a target has a mean and a variance of its own; below, the other targets help."""

    def score(self, seen: Evidence) -> Floats:
        """See `lira_offline`."""
        return lira_offline(seen.need("margins"), seen.need("references"), seen.included, self.enough)
