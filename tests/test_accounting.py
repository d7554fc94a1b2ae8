"""Epsilon of a record: the accounting library's and Opacus's for Poisson sampling, the honest one for fixed batches."""

from __future__ import annotations

import math
import sys

import dp_accounting
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from scapegoat import accounting
from scapegoat.accounting import Exposure, record_epsilon, record_epsilons
from scapegoat.errors import InputError
from tests.reference.accounting import fixed_bounds

DELTA = 1e-5
NUMBERS = [(100, 3.0, 0.05), (10, 2.0, 0.2), (1000, 4.0, 0.01), (20, 4.0, 1.0)]


def composed(accountant: dp_accounting.PrivacyAccountant, event: dp_accounting.DpEvent, rounds: int) -> float:
    return float(accountant.compose(event, rounds).get_epsilon(DELTA))


@pytest.mark.parametrize(("rounds", "noise", "rate"), NUMBERS)
def test_poisson_batches_cost_what_the_accounting_library_says(rounds: int, noise: float, rate: float) -> None:
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    want = composed(pld.PLDAccountant(), event, rounds)
    have = record_epsilon(rounds, noise, rate, DELTA)
    assert have == pytest.approx(want, rel=1e-3)
    assert have <= composed(rdp.RdpAccountant(), event, rounds)


@pytest.mark.parametrize(("rounds", "noise", "rate"), NUMBERS[:2])
def test_poisson_batches_cost_what_opacus_says(rounds: int, noise: float, rate: float) -> None:
    accountants = pytest.importorskip("opacus.accountants")
    prv = accountants.PRVAccountant()
    renyi = accountants.RDPAccountant()
    prv.history = renyi.history = [(noise, rate, rounds)]
    have = record_epsilon(rounds, noise, rate, DELTA)
    assert have == pytest.approx(prv.get_epsilon(DELTA, eps_error=0.01), abs=0.021)
    assert have <= renyi.get_epsilon(DELTA)


def gaussian_delta(epsilon: float, sigma: float, sensitivity: float) -> float:
    """Balle and Wang (2018), equation 6."""
    a, b = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
    return float(norm.cdf(a - b) - math.exp(epsilon + norm.logcdf(-a - b)))


@settings(max_examples=6, deadline=None)
@given(st.floats(1.0, 5.0), st.floats(0.01, 1.0))
def test_one_round_of_a_fixed_batch_is_the_closed_form_at_twice_the_clip(noise: float, rate: float) -> None:
    """Balle, Barthe and Gaboardi (2018), Theorem 9: delta' = q delta at epsilon' = log(1 + q (e^epsilon - 1))."""

    def excess(amplified: float) -> float:
        return rate * gaussian_delta(math.log1p(math.expm1(amplified) / rate), noise, 2.0) - DELTA

    want = brentq(excess, 1e-9, 60.0) if excess(1e-9) > 0 else 0.0
    assert record_epsilon(1, noise, rate, DELTA, "fixed") == pytest.approx(want, rel=2e-3, abs=1e-4)


@pytest.mark.parametrize(("rounds", "noise", "rate"), [(200, 3.0, 0.05), (20, 6.0, 0.5)])
def test_fixed_batches_lie_between_a_real_attack_and_looser_bounds(rounds: int, noise: float, rate: float) -> None:
    have = record_epsilon(rounds, noise, rate, DELTA, "fixed")
    least, most = fixed_bounds([rate] * rounds, noise)
    assert least <= have <= most
    assert have > record_epsilon(rounds, noise, rate, DELTA)


def test_a_fixed_batch_of_all_records_is_the_plain_mechanism_at_twice_the_clip() -> None:
    want = composed(pld.PLDAccountant(), dp_accounting.GaussianDpEvent(2.0), 20)
    assert record_epsilon(20, 4.0, 1.0, DELTA, "fixed") == pytest.approx(want, rel=1e-3)


def test_the_whole_is_as_private_as_its_worst_client() -> None:
    exposures = {3: Exposure(10, 1000, 50), 5: Exposure(20, 1000, 50), 9: Exposure(10, 40, 50), 11: Exposure(0, 9, 5)}
    spent = record_epsilons(exposures, noise=2.0, delta=DELTA)
    assert spent.clients[3] == record_epsilon(10, 2.0, 0.05, DELTA)
    assert spent.clients[9] == record_epsilon(10, 2.0, 1.0, DELTA)
    assert spent.clients[11] == 0.0
    assert spent.whole == max(spent.clients.values()) == spent.clients[9]
    assert spent.clients[3] < spent.clients[5]
    assert record_epsilons({}, noise=2.0, delta=DELTA).whole == 0.0


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_no_noise_no_privacy_no_rounds_no_loss(sampling: accounting.Sampling) -> None:
    assert record_epsilon(1, 0.0, 0.1, DELTA, sampling) == math.inf
    assert record_epsilon(0, 0.0, 0.1, DELTA, sampling) == 0.0
    assert record_epsilon(5, 1.0, 0.0, DELTA, sampling) == 0.0
    hopeless = record_epsilon(400, 1e-3, 0.5, DELTA, sampling)
    assert accounting.HOPELESS < hopeless < math.inf


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ((1, -1.0, 0.1, DELTA), "noise is -1"),
        ((1, math.nan, 0.1, DELTA), "noise is nan"),
        ((1, 1.0, 1.5, DELTA), "sampling rate is 1.5"),
        ((1, 1.0, 0.5, 0.0), "delta is 0"),
        ((-1, 1.0, 0.5, DELTA), "rounds are -1"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(numbers: tuple[int, float, float, float], problem: str) -> None:
    with pytest.raises(InputError, match=f"^(the )?{problem}; "):
        record_epsilon(*numbers)


def test_without_the_accounting_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    accounting._record_epsilon.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match=r"scapegoat-fl\[dp\]"):
        record_epsilon(1, 1.0, 0.1, DELTA)


def test_an_epsilon_that_leaves_the_grid_is_still_told() -> None:
    before, at, after = (record_epsilon(rounds, 0.2, 64 / 278, 1e-5) for rounds in (100, 168, 300))
    assert before < at < after < math.inf
