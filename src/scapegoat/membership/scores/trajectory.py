"""Where a target stands among the targets, over the whole of training."""

from __future__ import annotations

import numpy as np
from scipy import special

from scapegoat.membership.scoring import Evidence, Floats, Score, checked_margins, midranks, register


def trajectory(margins: np.ndarray) -> Floats:
    """Weighted mean over rounds of a target's normal score among all targets.

    In each round the margins are replaced by their ranks and the ranks by normal quantiles (van der Waerden scores),
    so margins that drift or grow in the course of training, for all targets alike, leave no trace. Round t of T, t
    from 1, weighs t: what is learned by heart shows late. Nothing is fitted; the function was fixed beforehand.

    Parameters
    ----------
    margins: [rounds, targets]. NaN ranks lowest, with -inf.

    Returns
    -------
    [targets], always finite; 0 for a target in the middle of every round.

    Examples
    --------
    >>> trajectory(np.array([[0.0, 1.0, 2.0], [10.0, 30.0, 20.0]])).round(3)
    array([-0.967,  0.645,  0.322])
    """
    checked = checked_margins(margins)
    rounds, targets = checked.shape
    place = special.ndtri((midranks(checked) - 0.5) / targets)
    weight = np.arange(1.0, rounds + 1)
    return np.asarray(weight @ place / weight.sum(), dtype=np.float64)


@register("trajectory")
class Trajectory(Score):
    """Mean normal score of the margin among all targets, later rounds weighing more."""

    def score(self, seen: Evidence) -> Floats:
        """The weighted mean over all rows of the margins."""
        return trajectory(seen.need("margins"))
