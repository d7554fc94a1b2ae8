"""The margin of the last round's model."""

from __future__ import annotations

import numpy as np

from scapegoat.membership.scoring import Evidence, Floats, Score, checked_margins, register


def final_margin(margins: np.ndarray) -> Floats:
    """The margin that each target has under the last model: the score of the paper's inference rule.

    Parameters
    ----------
    margins: [rounds, targets].

    Returns
    -------
    [targets]; NaN becomes -inf.

    Examples
    --------
    >>> final_margin(np.array([[5.0, 5.0], [1.0, np.nan]]))
    array([  1., -inf])
    """
    last = checked_margins(margins)[-1]
    return np.where(np.isnan(last), -np.inf, last)


@register("final_margin")
class FinalMargin(Score):
    """Margin of the last round's model."""

    def score(self, seen: Evidence) -> Floats:
        """The last row of the margins."""
        return final_margin(seen.need("margins"))
