"""What the accounting library says of Gaussian noise on batches: Poisson sampling exactly, fixed ones by bounds."""

from __future__ import annotations

from collections.abc import Sequence

import dp_accounting
from dp_accounting import pld, rdp

RECORDS = 1000
DELTA = 1e-5


def epsilon(accountant: dp_accounting.PrivacyAccountant, events: Sequence[dp_accounting.DpEvent]) -> float:
    """Of the events one after the other."""
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(DELTA))


def poisson(rates: Sequence[float], noise: float) -> float:
    """Rounds that draw every record independently at these rates."""
    gaussian = dp_accounting.GaussianDpEvent(noise)
    events = [dp_accounting.PoissonSampledDpEvent(rate, gaussian) for rate in rates]
    return epsilon(pld.PLDAccountant(value_discretization_interval=1e-3), events)


def fixed_bounds(rates: Sequence[float], noise: float) -> tuple[float, float]:
    """Least and most for rounds that draw a fixed share of the records, for one that is replaced.

    At least what the worst data shows: one record points one way, all others (and its replacement) the other. At most
    what the better of two published bounds for such batches gives.
    """
    halved = dp_accounting.GaussianDpEvent(noise / 2)
    shown = epsilon(
        pld.PLDAccountant(value_discretization_interval=1e-3),
        [dp_accounting.PoissonSampledDpEvent(rate, halved) for rate in rates],
    )
    replaced = dp_accounting.NeighboringRelation.REPLACE_ONE
    batches = [round(RECORDS * rate) for rate in rates]
    truncated = epsilon(
        pld.PLDAccountant(replaced, 1e-3),
        [dp_accounting.TruncatedSubsampledGaussianDpEvent(RECORDS, 1.0, batch, noise) for batch in batches],
    )
    renyi = epsilon(
        rdp.RdpAccountant(neighboring_relation=replaced),
        [dp_accounting.SampledWithoutReplacementDpEvent(RECORDS, batch, halved) for batch in batches],
    )
    return 0.999 * shown, min(1.001 * truncated, renyi)
