"""How AUCs of several scores on the same targets vary together (DeLong, DeLong, Clarke-Pearson 1988)."""

from __future__ import annotations

import numpy as np

from scapegoat.membership.scoring import Floats, midranks


def auc_covariance(scores: np.ndarray, member: np.ndarray) -> tuple[Floats, Floats]:
    """AUCs of several scores on the same targets, and the covariance of these estimates.

    Parameters
    ----------
    scores: [scores, targets], higher for members; NaN ranks lowest.
    member: [targets] of true and false, at least two of each.

    Returns
    -------
    AUCs [scores] and their covariance [scores, scores], in O(targets log targets) per score (Sun and Xu 2014).

    Examples
    --------
    >>> auc, covariance = auc_covariance(np.array([[3.0, 2.0, 2.0, 1.0]]), np.array([True, True, False, False]))
    >>> auc, covariance
    (array([0.875]), array([[0.03125]]))
    """
    inside, outside = scores[:, member], scores[:, ~member]
    members, others = inside.shape[1], outside.shape[1]
    ranks = midranks(np.concatenate([inside, outside], axis=1))
    # Share of the other group that each target beats: a U statistic's two sets of components.
    wins_in = (ranks[:, :members] - midranks(inside)) / others
    wins_out = 1 - (ranks[:, members:] - midranks(outside)) / members
    covariance = np.atleast_2d(np.cov(wins_in)) / members + np.atleast_2d(np.cov(wins_out)) / others
    return wins_in.mean(1), np.asarray(covariance, dtype=np.float64)
