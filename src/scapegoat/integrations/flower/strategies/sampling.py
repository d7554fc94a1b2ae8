"""Choosing the nodes of a round by Poisson sampling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scapegoat.errors import InputError


class PoissonSampler:
    """A strategy's `sampler` that draws every connected client with probability `rate`, independently, in every round.

    A round asks a varying number of clients, none at times; it then changes nothing, as does one with too few for the
    rule. `DifferentialPrivacy` accounts such rounds at `rate`, for a client that is added or removed: a smaller epsilon
    than that of a fixed number of clients. The draws are secret unless a `seed` makes them repeatable.

    Examples
    --------
    >>> sampler = PoissonSampler(0.3, seed=1)
    >>> len(sampler(1, list(range(1000))))
    303
    """

    def __init__(self, rate: float, seed: int | None = None) -> None:
        if not 0 < rate <= 1:
            raise InputError(f"rate: {rate!r} is not allowed; a probability above 0 and at most 1 is expected")
        self.poisson_rate = float(rate)
        self._draw = np.random.default_rng(seed)

    def __call__(self, server_round: int, ids: list[int]) -> Sequence[int]:
        """The clients of the round."""
        drawn = self._draw.random(len(ids)) < self.poisson_rate
        return [client for client, chosen in zip(ids, drawn, strict=True) if chosen]
