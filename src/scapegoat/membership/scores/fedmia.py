"""FedMIA: a client's updates against those of all other clients."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from scipy import special

from scapegoat.membership.scores.update_cosine import of_client
from scapegoat.membership.scoring import Bools, Evidence, Floats, Score, checked_cosines, register

NARROWEST = 1e-4
"""No null is taken to be narrower: a handful of clients may agree by accident."""


def fedmia(cosines: np.ndarray, client: int | np.ndarray | None = None) -> Floats:
    """Mean over rounds of the probability that a client who did not train on the target has a smaller cosine.

    Zhu et al. 2025 (CVPR, arXiv 2402.06289): data sets are disjoint, so the other clients of a round cannot have
    trained on what the client in question owns; their cosines are the null. A Gaussian is fitted to them per round and
    target, and the one-tailed probabilities of the rounds are averaged.

    Parameters
    ----------
    cosines: [rounds, clients, targets]; NaN where the client did not take part.
    client: the client in question, one for all targets or [targets]. None: the client with the largest score.

    Returns
    -------
    [targets], between 0 and 1; 1/2 where no round has both the client and two others.

    Examples
    --------
    >>> fedmia(np.array([[[0.9, 0.1], [0.0, 0.0], [0.2, 0.2]]]), client=0).round(3)
    array([1. , 0.5])
    """
    tail, counts = tails(checked_cosines(cosines))
    rounds = counts.sum(0)
    return of_client(np.where(rounds > 0, tail.sum(0) / rounds.clip(1), 0.5), client)


def tails(checked: Floats) -> tuple[Floats, Bools]:
    """Per round, client and target, the probability that another client's cosine is smaller, and where it is known.

    It is known, else 0, where the client and at least two others took part; `checked` is NaN where one did not.
    """
    seen = ~np.isnan(checked)
    values = np.where(seen, checked, 0.0)
    others = seen.sum(1, keepdims=True) - seen
    mean = (values.sum(1, keepdims=True) - values) / others.clip(1)
    # Deviations from the mean of all, not raw squares: cosines may differ in their last digits only.
    centre = values.sum(1, keepdims=True) / seen.sum(1, keepdims=True).clip(1)
    deviation = np.where(seen, values - centre, 0.0)
    squares = (deviation**2).sum(1, keepdims=True) - deviation**2
    variance = squares / others.clip(1) - (mean - centre) ** 2
    spread = np.sqrt(variance.clip(NARROWEST**2))
    counts = seen & (others >= 2)
    return np.where(counts, special.ndtr((values - mean) / spread), 0.0), counts


@register("fedmia")
class FedMIA(Score):
    """FedMIA: how far a client's update cosine exceeds those of the other clients, over all rounds."""

    seat: ClassVar[Literal["client", "server"]] = "server"

    def score(self, seen: Evidence) -> Floats:
        """See `fedmia`."""
        return fedmia(seen.need("cosines"), seen.client)
