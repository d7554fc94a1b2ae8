import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from scapegoat.errors import InputError
from scapegoat.membership import auc_value, tpr_at_fpr
from scapegoat.membership.exposure import at_priors, posteriors
from scapegoat.membership.intervals import over_seeds, tpr_at_fpr_joint
from scapegoat.membership.multiplicity import by_slice, holm, worst_score

MEMBER = np.arange(200) < 100
scored = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 1.0, 2.0, float("nan"), float("inf"), float("-inf")]), st.booleans()),
    min_size=1,
    max_size=25,
)


def split(pairs):
    return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])


@settings(deadline=None)
@given(scored, st.sampled_from([0.0, 0.001, 0.1, 0.5, 1.0]))
def test_joint_interval_holds_the_estimate_whatever_the_scores(pairs, fpr):
    scores, member = split(pairs)
    found = tpr_at_fpr_joint(scores, member, fpr)
    assert found.value == tpr_at_fpr(scores, member, fpr).value
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


@pytest.mark.parametrize("fpr", [0.01, 0.1])
def test_joint_interval_covers_the_rate_at_the_true_threshold_where_the_plain_one_does_not(fpr):
    rng = np.random.default_rng(0)
    truth = special.ndtr(1.5 - special.ndtri(1 - fpr))
    joint = plain = 0
    for _ in range(400):
        scores = rng.normal(size=200) + 1.5 * MEMBER
        wide, narrow = tpr_at_fpr_joint(scores, MEMBER, fpr), tpr_at_fpr(scores, MEMBER, fpr)
        joint += wide.low <= truth <= wide.high
        plain += narrow.low <= truth <= narrow.high
    assert joint >= 380
    assert plain < 340


def test_joint_interval_brackets_the_threshold_by_binomial_tails():
    """With members and non-members one by one: the order statistics are those that binomial tails of 1/80 allow."""
    scores = np.concatenate([np.arange(100) + 0.5, np.arange(100.0)])
    found = tpr_at_fpr_joint(scores, MEMBER, 0.2)
    j = max(j for j in range(1, 101) if stats.binom.cdf(j - 1, 100, 0.2) <= 0.0125)
    k = min(k for k in range(1, 101) if stats.binom.sf(k - 1, 100, 0.2) <= 0.0125)
    # Of the members, j lie above the j-th largest non-member.
    assert found.low == pytest.approx(stats.beta.ppf(0.0125, j, 100 - j + 1))
    assert found.high == pytest.approx(stats.beta.ppf(1 - 0.0125, k + 1, 100 - k))


def test_seeds_that_differ_widen_the_interval():
    rng = np.random.default_rng(1)
    alike = [(rng.normal(size=200) + MEMBER, MEMBER) for _ in range(5)]
    apart = [(rng.normal(size=200) + shift * MEMBER, MEMBER) for shift in (0.0, 0.5, 1.0, 1.5, 2.0)]
    narrow, wide = over_seeds(alike), over_seeds(apart)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert narrow.value == pytest.approx(np.mean([auc_value(s, m) for s, m in alike]))


def test_interval_over_seeds_covers_the_mean_of_all_seeds():
    rng = np.random.default_rng(2)
    spread = 0.3
    truth = special.ndtr((1 + spread * rng.normal(size=100_000)) / np.sqrt(2)).mean()
    covered = 0
    for _ in range(100):
        runs = [(rng.normal(size=200) + (1 + spread * rng.normal()) * MEMBER, MEMBER) for _ in range(4)]
        found = over_seeds(runs)
        covered += found.low <= truth <= found.high
    assert covered >= 88


def test_seeds_without_both_groups_are_refused():
    with pytest.raises(InputError, match="at least one"):
        over_seeds([])
    with pytest.raises(InputError, match="two members"):
        over_seeds([(np.zeros(3), np.ones(3, bool))] * 2)


def test_worst_of_many_blind_scores_is_not_taken_for_leakage():
    rng = np.random.default_rng(3)
    fooled = significant = 0
    for trial in range(100):
        scores = {str(i): rng.normal(size=200) for i in range(8)}
        found = worst_score(scores, MEMBER, seed=trial)
        fooled += found.estimate.low > 0.5
        significant += found.p <= 0.05
        assert found.name == max(scores, key=lambda n: auc_value(scores[n], MEMBER))
    # Uncorrected, one of eight would be fooled one time in five.
    assert fooled <= 8
    assert significant <= 12


def test_worst_score_that_leaks_is_found():
    noise = np.random.default_rng(4).normal(size=200)
    found = worst_score({"blind": noise, "leaks": noise + 2 * MEMBER, "same": noise + 2 * MEMBER}, MEMBER)
    assert found.name == "leaks"
    assert found.estimate.low > 0.8
    assert found.p < 0.01


@settings(deadline=None, max_examples=25)
@given(scored)
def test_worst_score_takes_hostile_scores(pairs):
    scores, member = split(pairs)
    found = worst_score({"a": scores, "b": np.zeros(len(scores))}, member)
    assert 0.0 <= found.estimate.low <= found.estimate.value <= found.estimate.high <= 1.0


def test_perfect_separation_does_not_make_the_worst_score_certain():
    found = worst_score({"a": MEMBER * 1.0}, MEMBER)
    assert found.estimate.value == found.estimate.high == 1.0
    assert found.estimate.low == pytest.approx(0.025 ** (1 / 100))


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_steps_down_from_the_smallest(p_values):
    found = holm(p_values)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    for rank, i in enumerate(order):
        steps = [min((len(order) - r) * p_values[order[r]], 1.0) for r in range(rank + 1)]
        assert found[i] == pytest.approx(max(steps))


def test_the_slice_that_leaks_is_told_from_those_that_do_not():
    rng = np.random.default_rng(5)
    slices = np.arange(200) % 4
    member = rng.permutation(200) < 100
    found = by_slice(rng.normal(size=200) + 3 * member * (slices == 2), member, slices)
    assert found[0].name == 2
    assert found[0].p < 0.05
    assert found[0].auc.low > 0.5
    assert all(s.auc.low <= 0.5 <= s.auc.high for s in found[1:])
    assert sum(s.members for s in found) == 100


def test_clients_who_own_members_only_are_compared_with_all_nonmembers():
    owner = np.where(MEMBER, np.arange(200) % 2, -1)
    scores = np.random.default_rng(6).normal(size=200) + 3 * (MEMBER & (owner == 1))
    found = by_slice(scores, MEMBER, owner, against_all=True)
    assert [(s.name, s.members, s.others) for s in found] == [(1, 50, 100), (0, 50, 100)]
    alone = by_slice(scores, MEMBER, owner)
    assert all((s.auc.ci, s.p) == ([0.0, 1.0], 1.0) for s in alone)


@given(st.integers(0, 50), st.integers(0, 50), st.sampled_from([0.001, 0.1, 0.5, 0.9]))
def test_precision_at_a_prior_is_bayes_rule_on_counts(found, false, prior):
    entry = at_priors(found, 50, false, 50, [prior])[0]
    if found + false:
        called = found / 50 * prior + false / 50 * (1 - prior)
        assert entry.precision.value == pytest.approx(found / 50 * prior / called)
    else:
        assert entry.precision.value == prior
    assert entry.precision.low <= entry.precision.value + 1e-12
    assert entry.precision.value <= entry.precision.high + 1e-12
    assert entry.lift.value == pytest.approx(entry.precision.value / prior)


def test_impossible_counts_and_priors_are_refused():
    with pytest.raises(InputError, match="exceed"):
        at_priors(51, 50, 0, 50)
    with pytest.raises(InputError, match="between 0 and 1"):
        at_priors(1, 50, 0, 50, [1.0])
    with pytest.raises(InputError, match="between 0 and 1"):
        posteriors(np.zeros(4), np.arange(4) < 2, prior=0.0)


def test_posteriors_are_calibrated_at_the_prior_they_are_given():
    rng = np.random.default_rng(7)
    member = rng.random(4000) < 0.5
    scores = rng.normal(size=4000) + 1.5 * member
    sure = posteriors(scores, member)
    for low, high in ((0.1, 0.3), (0.4, 0.6), (0.7, 0.9)):
        chosen = (sure > low) & (sure < high)
        assert member[chosen].mean() == pytest.approx(sure[chosen].mean(), abs=0.06)
    rare = posteriors(scores, member, prior=0.01)
    np.testing.assert_allclose(special.logit(rare), special.logit(sure) + special.logit(0.01), atol=1e-9)


def test_posteriors_do_not_depend_on_how_many_targets_the_audit_made_members():
    rng = np.random.default_rng(9)
    member = rng.random(4000) < 0.2
    sure = posteriors(rng.normal(size=4000) + member, member, prior=0.2)
    assert sure.mean() == pytest.approx(0.2, abs=0.02)
