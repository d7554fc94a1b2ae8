import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scapegoat.membership import auc, auc_value, calls, metrics, rate, tpr_at_fpr
from scapegoat.tasks import Classification
from tests.reference import membership as reference

scores_and_members = st.lists(
    st.tuples(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0, float("-inf")]), st.booleans()), min_size=2, max_size=30
).map(lambda pairs: (np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])))


@given(scores_and_members)
def test_auc_counts_pairs_with_ties_half(case):
    scores, member = case
    assert auc_value(scores, member) == pytest.approx(reference.auc(scores.tolist(), member.tolist()), abs=1e-12)


@given(scores_and_members, st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 1.0]))
def test_tpr_at_fpr_is_the_best_threshold_that_keeps_the_fpr(case, fpr):
    scores, member = case
    expected = reference.tpr_at_fpr(scores.tolist(), member.tolist(), fpr)
    assert tpr_at_fpr(scores, member, fpr).value == pytest.approx(expected, abs=1e-12)


@given(scores_and_members)
def test_best_threshold_accuracy_tries_every_threshold(case):
    scores, member = case
    expected = reference.best_threshold_accuracy(scores.tolist(), member.tolist())
    assert metrics.best_threshold_accuracy(scores, member) == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 40), st.integers(1, 40))
def test_rate_interval_has_exact_tails(hits, extra):
    trials = hits + extra
    estimate = rate(hits, trials)
    assert estimate.low <= estimate.value <= estimate.high
    if hits:
        assert reference.binomial_tail(hits, trials, estimate.low) == pytest.approx(0.025, abs=1e-6)
    if hits < trials:
        assert 1 - reference.binomial_tail(hits + 1, trials, estimate.high) == pytest.approx(0.025, abs=1e-6)


def test_rate_without_trials_claims_nothing():
    assert rate(0, 0).ci == [0.0, 1.0]


@given(scores_and_members)
def test_calls_agree_with_counting(case):
    scores, member = case
    called = scores > 0
    found = calls(called, member)
    assert found.accuracy.value == pytest.approx(np.mean(called == member))
    true = int((called & member).sum())
    assert found.precision.value == pytest.approx(true / called.sum() if called.any() else 0.0)
    assert found.recall.value == pytest.approx(true / member.sum() if member.any() else 0.0)
    for figure in (found.accuracy, found.precision, found.recall, found.advantage):
        assert figure.low <= figure.value + 1e-12
        assert figure.value <= figure.high + 1e-12


@pytest.mark.parametrize("step", [0.0, 0.5, 100.0])
@pytest.mark.parametrize("targets", [12, 40, 301])
def test_auc_interval_is_that_of_all_pairs_of_each_resample(targets, step):
    rng = np.random.default_rng(targets)
    member = np.arange(targets) % 3 == 0
    scores = rng.normal(size=targets) + 0.6 * member
    scores[-2:] = [np.inf, -np.inf]
    scores = np.round(scores / step) * step if step else scores
    found = auc(scores, member, seed=3)
    low, high = reference.auc_interval(scores, member, metrics.RESAMPLES, seed=3)
    assert found.low == pytest.approx(min(low, found.value), abs=1e-12)
    assert found.high == pytest.approx(max(high, found.value), abs=1e-12)


def test_auc_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    truth = 0.7602  # of two unit normals one apart
    covered = 0
    member = np.repeat([True, False], 100)
    for i in range(200):
        scores = np.concatenate([rng.normal(1, 1, 100), rng.normal(0, 1, 100)])
        estimate = auc(scores, member, seed=i)
        covered += estimate.low <= truth <= estimate.high
    assert 180 <= covered <= 199


def test_perfect_separation_does_not_claim_certainty():
    estimate = auc(np.array([2.0, 3.0, 0.0, 1.0]), np.array([True, True, False, False]))
    assert estimate.value == 1.0
    assert estimate.low < 0.9


def test_margin_is_positive_exactly_when_the_true_label_is_predicted():
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 5.0, 1.0], [float("nan"), 1.0, 0.0]])
    margin = Classification().margins(logits, torch.tensor([0, 2, 0]))
    assert margin.tolist() == [1.0, -4.0, float("-inf")]
