"""Theorem 1: the formula, where chance agrees with it and where it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results import theory
from scapegoat.errors import InputError


def test_the_formula() -> None:
    assert theory.bound(10, 1, 1) == pytest.approx(2 * 9 * 2 / 8**2)
    assert theory.bound(50, 10, 12, sigma=0.1) == pytest.approx(2 * 40 * 13 * 0.01 / 28**2)


@given(st.integers(1, 30), st.integers(0, 30))
def test_the_algorithms_own_bound_is_the_papers_where_b_equals_m(m: int, spare: int) -> None:
    n = 3 * m + spare
    if 2 * m < n:
        assert theory.bound_largest(n, m, m) == pytest.approx(theory.bound(n, m, m))


@pytest.mark.parametrize(("n", "m", "b"), [(10, 5, 1), (10, -1, 1), (10, 1, -1), (10, 4, 6)])
def test_outside_its_assumptions_it_says_so(n: int, m: int, b: int) -> None:
    with pytest.raises(InputError, match="Theorem 1 needs"):
        theory.bound(n, m, b)


def test_impossible_trims_are_refused() -> None:
    with pytest.raises(InputError, match="2b < n"):
        theory.check(10, 1, 5)
    with pytest.raises(InputError, match="m <= 2b < n"):
        theory.bound_largest(10, 3, 1)


@pytest.mark.parametrize("name", theory.DISTRIBUTIONS)
def test_honest_angles_have_mean_zero_and_variance_one(name: str) -> None:
    values = theory.DISTRIBUTIONS[name](np.random.default_rng(0), (1000, 1000))
    assert float(values.mean()) == pytest.approx(0, abs=0.01)
    # Heavy tails converge slowly: the fourth moment of the Pareto and the t distribution does not exist.
    assert float(values.std()) == pytest.approx(1, rel=0.1)


def test_without_trimming_the_error_is_the_variance_of_a_mean() -> None:
    measured = theory.check(10, 0, 0, "normal", trials=50_000)
    assert measured.error == pytest.approx(1 / 10, rel=0.03)
    assert measured.bound == pytest.approx(2 / 10)


@pytest.mark.parametrize("name", theory.DISTRIBUTIONS)
@pytest.mark.parametrize("placement", theory.PLACEMENTS)
def test_trimming_both_ends_holds_for_m_up_to_b(name: str, placement: str) -> None:
    for n, m, b in ((10, 1, 1), (10, 3, 4), (50, 10, 10)):
        assert theory.check(n, m, b, name, placement, trials=2000).ratio < 1


def test_it_fails_with_fewer_trimmed_than_malicious() -> None:
    assert theory.check(10, 2, 1, placement=16.0, trials=2000).fails


def test_the_algorithm_fails_against_small_angles_but_not_against_large_ones() -> None:
    assert not theory.check(10, 1, 1, placement=16.0, trimming="largest", trials=2000).fails
    assert theory.check(10, 1, 1, placement=-16.0, trimming="largest", trials=2000).fails


def test_the_algorithm_fails_without_an_attacker_if_it_drops_almost_everybody() -> None:
    measured = theory.check(50, 0, 24, "normal", trimming="largest", trials=5000)
    assert measured.fails
    assert measured.error < theory.bound_largest(50, 0, 24)


def test_an_attacker_that_sends_the_mean_is_kept_and_breaks_the_bound() -> None:
    honest = theory.gradients("honest", trials=60, d=300)
    blended = theory.gradients("mean", trials=60, d=300)
    assert not honest.check.fails
    assert blended.check.fails
    assert blended.attacker_kept == 1
    assert blended.attacker < blended.omega - 3 * blended.sigma
    assert math.isclose(honest.omega, blended.omega, rel_tol=0.02)


def test_tables_are_whole() -> None:
    lines = list(theory.tables(trials=200))
    assert sum(line.startswith("| ---") for line in lines) == 5
    assert all(line.count("|") > 3 for line in lines if line.startswith("|"))
