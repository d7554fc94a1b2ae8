"""Whether a client's updates hold a target's gradient, once the gradients of the other suspects are accounted for."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from scapegoat.errors import InputError
from scapegoat.membership.scores.update_cosine import of_client
from scapegoat.membership.scoring import Bools, Evidence, Floats, Regression, Score, register

NARROWEST = 1e-3
"""No null is taken to be narrower than so much of what is looked for: a handful of clients may agree by accident."""


def update_regression(regression: Regression, client: int | np.ndarray | None = None) -> Floats:
    """Sum over rounds of the log likelihood ratio that a client's update holds the target's gradient.

    The update is the sum of the gradients of a batch. Regressed on the gradients of all targets that the client is
    suspected of, it has for each of them a coefficient, of known size if the target was in the batch and around zero
    otherwise. As in FedMIA (Zhu et al. 2025, CVPR, arXiv 2402.06289) the other clients of the round are the null; they
    are few, so that it is a Student's t. A member is in a batch with a known chance only, so that one round's ratio is
    that of a mixture: a round without the member says little, one with it much.

    Parameters
    ----------
    regression: the coefficients, what they would be, and the chance of each client's records to be in its batch.
    client: the client in question, one for all targets or [targets]. None: the client with the largest sum.

    Returns
    -------
    [targets]; 0 where no round has both the client and two others.

    Examples
    --------
    >>> found = np.array([[[0.9, 0.1], [0.0, 0.1], [0.1, 0.0]]])
    >>> seen = Regression(found, expected=np.ones((1, 3, 2)), chance=np.full(3, 0.5))
    >>> update_regression(seen, client=0).round(2)
    array([ 2.54, -0.68])
    """
    found, expected = (np.asarray(part, dtype=np.float64) for part in (regression.found, regression.expected))
    chance = np.asarray(regression.chance, dtype=np.float64)
    if found.ndim != 3 or 0 in found.shape or expected.shape != found.shape or chance.shape != found.shape[1:2]:
        raise InputError(
            "regression must be found and expected [rounds, clients, targets] and chance [clients]; the shapes are "
            f"{list(found.shape)}, {list(expected.shape)} and {list(chance.shape)}"
        )
    ratios, _ = log_ratios(found, expected, chance)
    return of_client(ratios.sum(0), client)


def log_ratios(found: Floats, expected: Floats, chance: Floats) -> tuple[Floats, Bools]:
    """Per round, client and target the log likelihood ratio, and where it is known (else 0).

    It is known where the client and at least two others have a finite coefficient.
    """
    seen = np.isfinite(found) & np.isfinite(expected)
    values = np.where(seen, found, 0.0)
    others = seen.sum(1, keepdims=True) - seen
    centre = values.sum(1, keepdims=True) / seen.sum(1, keepdims=True).clip(1)
    # Deviations from the mean of all, not raw squares: coefficients may differ in their last digits only.
    deviation = np.where(seen, values - centre, 0.0)
    count = others.clip(1)
    shift = (deviation.sum(1, keepdims=True) - deviation) / count
    squares = ((deviation**2).sum(1, keepdims=True) - deviation**2 - count * shift**2).clip(0)
    freedom = (others - 1).clip(1)
    size = np.where(seen, np.abs(expected), 0.0)
    # The null's mean is itself a mean of a few, which the second factor allows for.
    spread = np.maximum(np.sqrt(squares / freedom * (1 + 1 / count)), NARROWEST * size)
    known = seen & (others >= 2) & (size > 0)
    safe = np.where(spread > 0, spread, 1.0)
    z, effect = (deviation - shift) / safe, np.where(known, expected, 0.0) / safe
    exponent = -(freedom + 1) / 2 * (np.log1p((z - effect) ** 2 / freedom) - np.log1p(z**2 / freedom))
    with np.errstate(divide="ignore"):
        absent, present = np.log1p(-chance)[:, None], np.log(chance)[:, None]
    return np.where(known, np.logaddexp(absent, present + exponent), 0.0), known


@register("update_regression")
class UpdateRegression(Score):
    """Likelihood that a client's updates hold the target's gradient, given those of the other suspects."""

    seat: ClassVar[Literal["client", "server"]] = "server"

    def score(self, seen: Evidence) -> Floats:
        """See `update_regression`."""
        if seen.regression is None:
            raise InputError("regression is missing: give Regression(found, expected, chance)")
        return update_regression(seen.regression, seen.client)

    @classmethod
    def possible(cls, seen: Evidence) -> bool:
        """Whether updates were regressed on the targets' gradients."""
        return seen.regression is not None
