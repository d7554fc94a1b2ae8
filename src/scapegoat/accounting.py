"""What Gaussian noise is worth, as (epsilon, delta), by privacy loss distributions from the dp-accounting library.

Of a client's whole contribution, or of a single record.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from scapegoat.errors import InputError

HOPELESS = 1e4
"""An epsilon beyond this promises nothing: the Renyi bound, which takes no grid of that size, stands in for it."""

FINENESS = 2000
"""Grid points up to epsilon: rounding to them costs less than a thousandth of it."""

Sampling = Literal["poisson", "fixed"]
"""How records (or clients) are drawn: each with the same probability, or a fixed number of them without replacement."""


@dataclass(frozen=True)
class Exposure:
    """A client's rounds, its records, and how many of them a batch takes (on average, if sampling is Poisson's)."""

    rounds: int
    records: int
    batch: int

    @property
    def rate(self) -> float:
        """The probability with which a record is in a batch."""
        return min(1.0, self.batch / self.records)


@dataclass(frozen=True)
class RecordEpsilon:
    """Epsilon of each client's records, and of every record of the federation."""

    clients: dict[int, float]
    whole: float


def record_epsilons(
    exposures: Mapping[int, Exposure], noise: float, delta: float, sampling: Sampling = "poisson"
) -> RecordEpsilon:
    """Epsilon at `delta` for the records of each client, and for the whole federation, of record-level DP-SGD.

    It holds against whoever sees every noisy update and knows who took part: nothing is gained from the noise of
    others, nor from the server's choice of clients, so a client's rounds are those that it took part in. A record
    belongs to one client, so the whole is as private as its worst client.

    >>> spent = record_epsilons({0: Exposure(100, 1000, 50), 1: Exposure(100, 100, 50)}, noise=1.0, delta=1e-5)
    >>> {client: round(epsilon, 2) for client, epsilon in spent.clients.items()}, round(spent.whole, 2)
    ({0: 3.5, 1: 39.98}, 39.98)
    """
    clients = {client: record_epsilon(e.rounds, noise, e.rate, delta, sampling) for client, e in exposures.items()}
    return RecordEpsilon(clients, max(clients.values(), default=0.0))


def record_epsilon(
    rounds: int, noise: float, sampling_rate: float, delta: float, sampling: Sampling = "poisson"
) -> float:
    """Epsilon at `delta` of a record whose client sent `rounds` sums of clipped gradients with noise of its own.

    The noise has standard deviation `noise` times the clip. The neighbouring relation is what the sampling allows:

    - `poisson`: a record is added or removed, which moves the sum by one clip.
    - `fixed`: a record is replaced, since the number of records is known; that moves the sum by two clips, whether the
      record is in the batch or another in its place. The profile of a round is Theorem 11 of Zhu, Dong and Wang
      (AISTATS 2022) for subsets: H(q P + (1 - q) Q || Q) for alpha >= 1 and its mirror below, P and Q two clips apart.

    The two epsilons answer different questions and are not to be compared; the second is the larger.

    >>> round(record_epsilon(400, noise=1.0, sampling_rate=0.05, delta=1e-5), 2)
    6.7
    >>> round(record_epsilon(400, noise=1.0, sampling_rate=0.05, delta=1e-5, sampling="fixed"), 2)
    40.01
    """
    if not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"noise is {noise:g}; it must be 0 or a positive number")
    if not 0 <= sampling_rate <= 1:
        raise InputError(f"the sampling rate is {sampling_rate:g}; it must be between 0 and 1")
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta:g}; it must be between 0 and 1")
    if rounds < 0:
        raise InputError(f"rounds are {rounds}; they must be 0 or more")
    if rounds == 0 or sampling_rate == 0:
        return 0.0
    if noise == 0:
        return math.inf
    return _record_epsilon(rounds, noise, sampling_rate, delta, sampling)


@lru_cache(maxsize=1024)
def _record_epsilon(rounds: int, noise: float, rate: float, delta: float, sampling: Sampling) -> float:
    require_library()
    with _quiet():
        bound = _renyi_bound({rate: rounds}, noise, delta, sampling)
        interval = min(0.01, max(1e-4, bound / FINENESS))
        return _composed({rate: rounds}, noise, delta, sampling, bound, interval)


def _composed(
    rounds: Mapping[float, int], noise: float, delta: float, sampling: Sampling, bound: float, interval: float
) -> float:
    """Epsilon of all rounds on a grid of this interval; where it leaves any grid, the Renyi bound that always holds."""
    if bound <= HOPELESS:
        parts = [_one_round(noise, rate, interval, sampling).self_compose(n) for rate, n in sorted(rounds.items())]
        found = float(functools.reduce(lambda a, b: a.compose(b), parts).get_epsilon_for_delta(delta))
        if math.isfinite(found):
            return found
    return bound if sampling == "poisson" else _renyi_epsilon_without_replacement(rounds, noise, delta)


@lru_cache(maxsize=64)
def _one_round(noise: float, rate: float, interval: float, sampling: Sampling) -> Any:
    """The privacy loss distribution of a round."""
    from dp_accounting.pld import privacy_loss_distribution as plds

    if sampling == "fixed":
        return _without_replacement(noise, rate, interval)
    return plds.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=interval)


def _without_replacement(noise: float, rate: float, interval: float) -> Any:
    """The privacy loss distribution of one round under sampling without replacement, a record being replaced."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as plds
    from dp_accounting.pld import privacy_loss_mechanism as losses

    def loss(adjacency: Any) -> Any:
        return losses.GaussianPrivacyLoss(noise, sensitivity=2, sampling_prob=rate, adjacency_type=adjacency)

    above, below = loss(losses.AdjacencyType.REMOVE), loss(losses.AdjacencyType.ADD)
    end = math.ceil(
        max(above.connect_dots_bounds().epsilon_upper, -below.connect_dots_bounds().epsilon_lower) / interval
    )
    grid = np.arange(-end, end + 1) * interval
    deltas = np.where(grid >= 0, above.get_delta_for_epsilon(grid), below.get_delta_for_epsilon(grid))
    return plds.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -end, end, deltas)
    )


def _renyi_bound(rounds: Mapping[float, int], noise: float, delta: float, sampling: Sampling) -> float:
    """The Renyi bound for Poisson sampling; it tells the size of the grid for fixed numbers too, at half the noise."""
    total: Any = 0.0
    for rate, count in rounds.items():
        orders, curve, compute_epsilon = _renyi_curve(noise if sampling == "poisson" else noise / 2, rate)
        total = total + count * curve
    return float(compute_epsilon(orders, total, delta)[0])


def _renyi_epsilon_without_replacement(rounds: Mapping[float, int], noise: float, delta: float) -> float:
    import dp_accounting
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    for rate, count in rounds.items():
        # The library asks for the noise as a multiple of the sensitivity, which is two clips.
        event = dp_accounting.SampledWithoutReplacementDpEvent(1, rate, dp_accounting.GaussianDpEvent(noise / 2))
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def epsilon_of_rounds(
    rounds: Mapping[float, int], noise_multiplier: float, delta: float, sampling: Sampling = "fixed"
) -> float:
    """Epsilon at `delta` of rounds of the Gaussian mechanism: sampling rate -> how many rounds picked that share.

    The unit of privacy is a client with its whole contribution, and the noise is its own: nothing is gained from the
    noise of other clients, so the guarantee holds whatever rule works on the noisy updates. It holds against who sees
    the results of the rounds, not whom the server picked. As for records (`record_epsilon`), the neighbouring relation
    is what the sampling allows: with a `fixed` number of clients one is replaced by another, with `poisson` one is
    added or removed.

    >>> [round(epsilon_of_rounds({0.1: 100}, 4.0, 1e-5, sampling), 2) for sampling in ("poisson", "fixed")]
    [0.98, 2.54]
    """
    known: dict[float, int] = {}
    for rate, count in rounds.items():
        if rate > 0 and count > 0:
            known[min(1.0, rate)] = known.get(min(1.0, rate), 0) + count
    if not known:
        return 0.0
    require_library()
    with _quiet():
        bound = _renyi_bound(known, noise_multiplier, delta, sampling)
        # A power of two, so that round after round can be told from the same distribution of one.
        interval = 2.0 ** math.floor(math.log2(min(0.01, max(1e-4, bound / FINENESS))))
        return _composed(known, noise_multiplier, delta, sampling, bound, interval)


@lru_cache(maxsize=64)
def _renyi_curve(noise_multiplier: float, sampling_rate: float) -> tuple[Any, Any, Any]:
    """Renyi orders and the divergence of one round at each; rounds add up."""
    require_library()
    import dp_accounting
    from dp_accounting import rdp

    event = dp_accounting.PoissonSampledDpEvent(sampling_rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    accountant = rdp.RdpAccountant()
    with _quiet():
        accountant.compose(event)
    return accountant.orders, accountant.rdp, rdp.compute_epsilon


def require_library() -> None:
    """Raise InputError unless dp-accounting is installed."""
    try:
        import dp_accounting  # noqa: F401
    except ImportError:
        raise InputError(
            "clipping with noise reports an epsilon: install the extra dp (pip install 'scapegoat-fl[dp]')"
        ) from None


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


def rule_delta(defense: Any) -> float | None:
    """The delta at which a rule, as a spec writes it, accounts for its noise: the largest of a pipeline's parts."""
    parts = defense if isinstance(defense, list | tuple) else [defense]
    deltas = [part.get("delta") for part in parts if isinstance(part, Mapping)]
    return max((delta for delta in deltas if isinstance(delta, int | float)), default=None)
