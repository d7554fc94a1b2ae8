"""LiRA with references of both kinds."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from scapegoat.errors import InputError
from scapegoat.membership.references import Compared, completed, expected, moments
from scapegoat.membership.scoring import Evidence, Floats, Score, register, settled


def lira_online(margins: np.ndarray, references: np.ndarray, included: np.ndarray, enough: int = 16) -> Floats:
    """Log likelihood ratio of a target's margin: trained on, against not trained on.

    Carlini et al. 2022 (arXiv 2112.03570), Algorithm 1: two Gaussians per target, fitted to the logit-scaled
    confidence, here the margin, of the references that did and did not train on it.

    Of few references a mean is a poor guess. A target with fewer than `enough` of a kind has the variance pooled over
    all targets, as the paper says, and a mean between its own and what the other targets suggest
    (`references.expected`). The latter is this project's; with enough references, or fewer than 20 targets, nothing of
    it is left.

    Parameters
    ----------
    margins: [rounds, targets] of the attacked run; the last round counts.
    references: [references, targets] or [references, rounds, targets].
    included: [references, targets], which references trained on the target.
    enough: a target's own means and variances are used from so many references of each kind on.

    Returns
    -------
    [targets], log p(margin | in) - log p(margin | out). Where a target lacks references of one kind, its mean is that
    of the other kind moved by the average shift.

    Examples
    --------
    >>> references = np.array([[0.0, 3.0], [2.0, 5.0], [4.0, 0.0], [6.0, 2.0]])
    >>> included = np.array([[False, True], [False, True], [True, False], [True, False]])
    >>> lira_online(np.array([[5.0, 1.0]]), references, included)
    array([ 4.  , -2.25])
    """
    last, margin, values, trained, out = Compared.of(margins, references, included)
    if not trained.any() or not out.any():
        kind = "with" if not trained.any() else "without"
        raise InputError(f"included: no reference was trained {kind} any target; both kinds are needed")
    inside, outside = moments(values, trained), moments(values, out)
    mean_in, mean_out, _ = completed(inside, outside)
    variance_in, variance_out = inside.variance(enough), outside.variance(enough)
    if inside.freedom and (prior := expected(inside, outside)) is not None:
        mean_in, variance_in = inside.shrunk(prior, enough)
    if outside.freedom and (prior := expected(outside, inside)) is not None:
        mean_out, variance_out = outside.shrunk(prior, enough)
    ratio = 0.5 * (
        (margin - mean_out) ** 2 / variance_out
        - (margin - mean_in) ** 2 / variance_in
        + np.log(variance_out)
        - np.log(variance_in)
    )
    return settled(np.nan_to_num(ratio), last)


@register("lira_online")
class LiraOnline(Score):
    """LiRA from references trained with and without the target: a likelihood ratio of two Gaussians per target."""

    needs_references: ClassVar[bool] = True
    needs_included: ClassVar[bool] = True

    enough: Annotated[int, Field(ge=2)] = 16
    """References from which on a target has a mean and a variance of its own; below, the other targets help."""

    def score(self, seen: Evidence) -> Floats:
        """See `lira_online`."""
        included = np.zeros((0, 0)) if seen.included is None else seen.included
        return lira_online(seen.need("margins"), seen.need("references"), included, self.enough)
