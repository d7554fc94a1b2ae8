"""The mean margin over the second half of training."""

from __future__ import annotations

import numpy as np

from scapegoat.membership.scoring import Evidence, Floats, Score, checked_margins, limited, register


def mean_margin(margins: np.ndarray) -> Floats:
    """Mean margin of each target over the second half of the rounds (the later half plus the middle one, if odd).

    One model is noisy; the mean over rounds is less so, and the first half, where nothing is learned by heart yet, is
    left out. A margin that is not finite says nothing and is left out too.

    Parameters
    ----------
    margins: [rounds, targets].

    Returns
    -------
    [targets]; -inf where no round says anything.

    Examples
    --------
    >>> mean_margin(np.array([[9.0, 9.0], [1.0, 2.0], [3.0, np.nan]]))
    array([2., 2.])
    """
    checked = checked_margins(margins)
    half = checked[len(checked) // 2 :]
    finite = np.isfinite(half)
    count = finite.sum(0)
    total = np.where(finite, limited(half), 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), -np.inf)


@register("mean_margin")
class MeanMargin(Score):
    """Mean margin over the second half of the rounds."""

    def score(self, seen: Evidence) -> Floats:
        """The mean over the later rows of the margins."""
        return mean_margin(seen.need("margins"))
