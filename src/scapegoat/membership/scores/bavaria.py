"""BaVarIA: LiRA whose variances are inferred, not estimated."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from scipy import special

from scapegoat.errors import InputError
from scapegoat.membership.references import NARROWEST, Compared, Moments, completed, expected, moments
from scapegoat.membership.scoring import Evidence, Floats, Score, register, settled

UNLEARNT = 0.1


def bavaria(
    margins: np.ndarray,
    references: np.ndarray,
    included: np.ndarray | None = None,
    mean_weight: float | None = None,
    variance_weight: float = 4.0,
) -> Floats:
    """Log ratio of Student-t predictive densities of a target's margin: trained on, against not trained on.

    Brännvall 2026 (arXiv 2603.11799), BaVarIA-t: the mean and variance of a target's margin have a conjugate
    normal-inverse-gamma prior, so that few references shrink the variance towards what is common to all targets, many
    leave it to the target, and nothing has to be switched. The prior is centred on the pooled variance. Its mean is
    what the other targets suggest: what a target's margin is when trained on is predicted from what it is when not, by
    a line through all targets, and the other way round; the prior counts for as many references as the spread around
    that line says. With fewer than 20 targets nothing can be learnt from the others: it is the average margin (out) or
    the target's own out mean moved by the average shift (in) and counts for a tenth of a reference. How the mean is
    centred, and the weights, are this project's.

    Without any reference that was trained on a target, the score is one-sided, as LiRA's offline score is: minus the
    log of the probability that the out margin is larger.

    Parameters
    ----------
    margins: [rounds, targets] of the attacked run; the last round counts.
    references: [references, targets] or [references, rounds, targets].
    included: [references, targets], which references trained on the target. None: none did.
    mean_weight: references that the prior mean counts for. None: learnt from the targets.
    variance_weight: references that the prior variance counts for.

    Returns
    -------
    [targets].

    Examples
    --------
    >>> references = np.array([[0.0, 3.0], [2.0, 5.0], [4.0, 0.0], [6.0, 2.0]])
    >>> included = np.array([[False, True], [False, True], [True, False], [True, False]])
    >>> bavaria(np.array([[5.0, 1.0]]), references, included).round(2)
    array([ 2.57, -1.69])
    """
    last, margin, values, trained, out = Compared.of(margins, references, included)
    if not out.any():
        raise InputError("references: every one of them trained on every target; some must have been trained without")
    inside, outside = moments(values, trained), moments(values, out)
    centre = np.full(len(last), float(outside.mean[outside.known].mean()))
    learnt = None if mean_weight is not None else expected(outside, inside)
    prior, weight = learnt or (centre, mean_weight or UNLEARNT)
    predictive_out = _predictive(outside, prior, weight, variance_weight)
    if not trained.any():
        freedom, mean, scale = predictive_out
        return settled(-_log_upper_tail((margin - mean) / scale, freedom), last)
    _, mean_out, shift = completed(inside, outside)
    learnt = None if mean_weight is not None else expected(inside, outside)
    prior, weight = learnt or (mean_out + shift, mean_weight or UNLEARNT)
    predictive_in = _predictive(inside, prior, weight, variance_weight)
    return settled(_log_density(margin, *predictive_in) - _log_density(margin, *predictive_out), last)


def _predictive(found: Moments, prior_mean: Floats, kappa: float, nu: float) -> tuple[Floats, Floats, Floats]:
    """Degrees of freedom, centre and scale of the Student-t that predicts the next margin of each target."""
    pooled = max(found.pooled_variance(), NARROWEST**2)
    weight = kappa + found.count
    freedom = nu + found.count
    mean = (kappa * prior_mean + found.count * found.mean) / weight
    squares = nu * pooled + found.squares + kappa * found.count * (found.mean - prior_mean) ** 2 / weight
    return freedom, mean, np.sqrt(squares / freedom * (1 + 1 / weight)).clip(NARROWEST)


def _log_density(margin: Floats, freedom: Floats, mean: Floats, scale: Floats) -> Floats:
    z = (margin - mean) / scale
    constant = special.gammaln((freedom + 1) / 2) - special.gammaln(freedom / 2) - 0.5 * np.log(freedom * np.pi)
    return np.asarray(constant - np.log(scale) - (freedom + 1) / 2 * np.log1p(z**2 / freedom), dtype=np.float64)


def _log_upper_tail(z: Floats, freedom: Floats) -> Floats:
    """Log of Pr[T > z], without underflow: beyond what a float holds, the tail falls as a power of z."""
    tail = special.stdtr(freedom, -z)
    far = (
        special.gammaln((freedom + 1) / 2)
        - special.gammaln(freedom / 2)
        - 0.5 * np.log(np.pi)
        + (freedom / 2 - 1) * np.log(freedom)
        - freedom * np.log(np.maximum(np.abs(z), 1.0))
    )
    return np.asarray(np.where(tail > 1e-280, np.log(np.maximum(tail, 1e-300)), far), dtype=np.float64)


@register("bavaria")
class Bavaria(Score):
    """BaVarIA: likelihood ratio of Student-t predictives under conjugate priors; for few references."""

    needs_references: ClassVar[bool] = True

    mean_weight: Annotated[float, Field(gt=0)] | None = None
    """References that the prior mean counts for; none given, what the targets tell."""
    variance_weight: Annotated[float, Field(gt=0)] = 4.0
    """References that the prior variance counts for."""

    def score(self, seen: Evidence) -> Floats:
        """See `bavaria`."""
        weights = self.mean_weight, self.variance_weight
        return bavaria(seen.need("margins"), seen.need("references"), seen.included, *weights)
