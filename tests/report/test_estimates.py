from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scapegoat.membership.metrics import Estimate
from scapegoat.report.estimate import difference, over_seeds, paired, stretched

share = st.floats(0, 1)


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    low, value, high = sorted(draw(st.tuples(share, share, share)))
    return Estimate(value, low, high)


def test_a_single_run_keeps_its_own_interval() -> None:
    assert over_seeds([Estimate(0.7, 0.6, 0.8)]) == Estimate(0.7, 0.6, 0.8)


def test_seeds_give_students_interval_of_their_mean() -> None:
    values = [0.62, 0.71, 0.66, 0.69]
    pooled = over_seeds([Estimate(v) for v in values])
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (pooled.value, pooled.low, pooled.high) == pytest.approx((np.mean(values), low, high))


def test_seeds_that_agree_by_accident_do_not_give_certainty() -> None:
    pooled = over_seeds([Estimate(1.0, 0.98, 1.0)] * 4)
    assert pooled.low == pytest.approx(0.99)
    assert pooled.high == 1.0


def test_equal_figures_without_intervals_stay_without_one() -> None:
    assert not over_seeds([Estimate(0.65), Estimate(0.65)]).bounded


@given(st.lists(estimates(), min_size=1, max_size=6))
def test_the_mean_lies_in_its_interval_and_the_interval_in_the_range(found: list[Estimate]) -> None:
    pooled = over_seeds(found)
    assert pooled.bounded
    assert -1e-12 <= pooled.low <= pooled.value + 1e-12
    assert pooled.value - 1e-12 <= pooled.high <= 1 + 1e-12


@given(st.lists(estimates(), min_size=2, max_size=6))
def test_pooling_never_claims_more_than_the_targets_allow(found: list[Estimate]) -> None:
    pooled = over_seeds(found, low=-math.inf, high=math.inf)
    widths = [e.value - e.low for e in found]
    assert pooled.value - pooled.low >= np.mean(widths) / math.sqrt(len(found)) - 1e-9


@given(estimates(), estimates())
def test_a_difference_turns_its_sign_with_its_sides(one: Estimate, other: Estimate) -> None:
    there, back = difference(one, other), difference(other, one)
    assert there.value == pytest.approx(-back.value)
    assert there.low == pytest.approx(-back.high)


def test_a_difference_is_newcombes() -> None:
    # 56/70 against 48/80, Newcombe 1998, table II (a), method 10: [0.0524, 0.3339]; Wilson bounds of the two rates.
    one, other = Estimate(56 / 70, 0.6918, 0.8769), Estimate(48 / 80, 0.4904, 0.7004)
    gap = difference(one, other)
    assert (gap.low, gap.high) == pytest.approx((0.0524, 0.3339), abs=2e-3)


def test_a_difference_without_an_interval_on_one_side_has_none() -> None:
    assert not difference(Estimate(0.9), Estimate(0.7, 0.6, 0.8)).bounded


def test_pairs_cancel_what_a_seed_shares() -> None:
    easy, hard = 0.9, 0.6
    pairs = [(Estimate(v + 0.02, v, v + 0.04), Estimate(v, v - 0.02, v + 0.02)) for v in (easy, hard, 0.75)]
    gap = paired(pairs)
    assert gap.value == pytest.approx(0.02)
    assert gap.high < 0.1  # unpaired, the seeds' spread alone would allow far more


@given(estimates(), st.integers(1, 40))
def test_more_comparisons_never_narrow_an_interval(estimate: Estimate, comparisons: int) -> None:
    wide, wider = stretched(estimate, comparisons), stretched(estimate, comparisons + 1)
    assert wider.low <= wide.low + 1e-12
    assert wider.high >= wide.high - 1e-12
