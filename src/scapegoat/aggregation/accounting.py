"""What Gaussian noise is worth: (epsilon, delta) by Renyi accounting, from the dp-accounting library."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from scapegoat.errors import InputError


def epsilon_after(rounds: int, noise_multiplier: float, sampling_rate: float, delta: float) -> float:
    """Epsilon at `delta` of `rounds` rounds of the Gaussian mechanism, each client picked with `sampling_rate`.

    The unit of privacy is a client (its whole contribution is added or removed) and the noise is its own: nothing is
    gained from the noise of other clients, so the guarantee holds whatever rule works on the noisy updates. Poisson
    sampling stands in for the server's choice of a fixed number of clients.
    """
    orders, curve, compute_epsilon = _renyi_curve(noise_multiplier, min(1.0, sampling_rate))
    with _quiet():
        return float(compute_epsilon(orders, rounds * curve, delta)[0])


@lru_cache(maxsize=64)
def _renyi_curve(noise_multiplier: float, sampling_rate: float) -> tuple[Any, Any, Any]:
    """Renyi orders and the divergence of one round at each; rounds add up."""
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        raise InputError(
            "dp with clip reports an epsilon: install the extra dp (pip install 'scapegoat-fl[dp]')"
        ) from None
    event = dp_accounting.PoissonSampledDpEvent(sampling_rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    accountant = rdp.RdpAccountant()
    with _quiet():
        accountant.compose(event)
    return accountant.orders, accountant.rdp, rdp.compute_epsilon


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The library warns about every order that it leaves out, and it always leaves some out."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
