"""arc, mda, foolsgold, signguard and fldetector do what their papers say, on random and on hostile updates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from scapegoat import aggregation
from scapegoat.aggregation import AggregationContext, get, parse
from scapegoat.aggregation.fldetector import hessian_product
from scapegoat.combining.clustering import groups_on_a_line, upper_group
from scapegoat.errors import InputError, OptionError
from tests.aggregation.inputs import as_rows, make, outnumbered, stacks
from tests.aggregation.test_rules_match_reference import agree
from tests.reference import peers as reference

many = settings(max_examples=40, deadline=None)


@many
@given(stacks(), st.data())
def test_arc_clips_the_longest_to_the_next(updates: Tensor, data: st.DataObject) -> None:
    f = data.draw(st.integers(0, (len(updates) - 1) // 2))
    agree(aggregation.arc(updates, f), reference.arc(as_rows(updates), f), updates)


@many
@given(outnumbered())
def test_after_arc_nobody_is_longer_than_the_longest_honest_update(case: tuple[Tensor, int]) -> None:
    updates, m = case
    n, longest = len(updates), float(updates[: len(updates) - m].norm(dim=1).max())
    answer = aggregation.arc(updates, m)
    if math.floor(2 * m * (n - m) / n) >= m:
        assert answer.notes["clip"] <= longest * (1 + 1e-5)
        assert float(answer.update.norm()) <= longest * (1 + 1e-4)


def test_arc_stands_before_a_rule() -> None:
    updates = make(1, 9, 100, spread=50.0)
    piped = parse([{"name": "arc", "malicious": 2}, "median"])(updates)
    bound = piped.notes["clip"]
    shortened = torch.stack([row * min(1.0, bound / float(row.norm())) for row in updates])
    assert torch.allclose(piped.update, aggregation.median(shortened).update, atol=1e-6)


@many
@given(stacks(min_rows=2, max_rows=9, kinds=("normal", "shared")), st.data())
def test_mda_is_the_subset_with_the_smallest_diameter(updates: Tensor, data: st.DataObject) -> None:
    f = data.draw(st.integers(0, (len(updates) - 1) // 2))
    assume(updates.shape[1] > 2)
    expected, sums = reference.mda(as_rows(updates), f)
    assume(min(np.diff(sums), default=1.0) > 1e-5 * max(sums))
    answer = aggregation.mda(updates, f)
    agree(answer, expected, updates)


@many
@given(outnumbered())
def test_mda_stays_within_reach_of_the_honest(case: tuple[Tensor, int]) -> None:
    """The honest are such a set, so no hostile update that is kept is farther from one than their own diameter."""
    updates, m = case
    honest = as_rows(updates[: len(updates) - m])
    answer = aggregation.mda(updates, m)
    widest = reference.diameter(honest, range(len(honest)))
    assert answer.notes["diameter"] <= widest * (1 + 1e-4) + 1e-6
    assert min(float(np.linalg.norm(answer.update.numpy() - row)) for row in honest) <= 2 * widest + 1e-4


def test_mda_is_quick_where_trying_all_subsets_would_not_be() -> None:
    """46 over 20 are 4e12 subsets."""
    updates = make(3, 46, 60)
    updates[26:] += 3 * make(4, 20, 60)
    assert int(aggregation.mda(updates, 20).kept.sum()) == 26
    assert int(aggregation.mda(make(3, 46, 60), 20).kept.sum()) == 26
    with pytest.raises(OptionError, match="malicious"):
        get("mda", malicious=21)


@many
@given(st.integers(0, 2**31), st.integers(1, 7), st.integers(-6, 6), st.sampled_from([0.5, 1.0, 3.0]))
def test_foolsgold_over_rounds_with_clients_that_come_and_go(seed: int, n: int, exponent: int, kappa: float) -> None:
    rng = np.random.default_rng(seed)
    rule, state = reference.FoolsGold(kappa), {}
    for round_ in range(4):
        ids = sorted(rng.choice(9, size=n, replace=False).tolist())
        updates = make(seed + round_, n, 30, 10.0**exponent, "shared", spread=10.0)
        update, _ = rule.round(as_rows(updates), ids)
        answer = aggregation.foolsgold(updates, kappa, client_ids=ids, state=state)
        error = float(np.linalg.norm(answer.update.double().numpy() - update))
        assert error <= 1e-4 * float(updates.norm(dim=1).max())
    assert len([key for key in state if key.startswith("direction/")]) == len(rule.sums)


def test_foolsgold_takes_the_say_from_clients_of_one_will_and_leaves_it_to_the_others() -> None:
    state: dict[str, Tensor] = {}
    goal = make(99, 1, 300)[0]
    for round_ in range(5):
        updates = make(round_, 9, 300)
        updates[6:] = goal + 0.05 * make(50 + round_, 3, 300)
        answer = aggregation.foolsgold(updates, state=state)
    assert answer.kept.tolist() == [True] * 6 + [False] * 3
    assert torch.allclose(answer.update, updates[:6].sum(0) / 9, atol=1e-5)


def test_foolsgold_of_nothing_but_the_same_update_keeps_nobody() -> None:
    answer = aggregation.foolsgold(make(1, 1, 30).expand(4, -1))
    assert not answer.kept.any()
    assert not answer.update.any()


def test_foolsgold_counts_a_client_that_sends_twice_once() -> None:
    """Its two updates add up; they are not taken for two clients of one will."""
    updates = make(3, 4, 300)
    twice = torch.cat([updates, updates[3:]])
    answer = aggregation.foolsgold(twice, client_ids=[0, 1, 2, 3, 3], state={})
    assert answer.kept.all()


@many
@given(
    stacks(kinds=("normal", "shared", "sparse")),
    st.integers(0, 2**31),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from([(0.1, 3.0), (0.5, 1.2), (0.0, 100.0)]),
)
def test_signguard_keeps_usual_lengths_and_signs(
    updates: Tensor, seed: int, share: float, band: tuple[float, float]
) -> None:
    d = updates.shape[1]
    chosen = torch.randperm(d, generator=torch.Generator().manual_seed(seed))[: max(1, math.ceil(share * d))].tolist()
    lengths = updates.double().norm(dim=1)
    order = lengths.argsort(stable=True)  # mean shift sums in the order of the points
    edges = [edge * float(np.median(lengths)) for edge in band]
    assume(all(abs(float(length) - edge) > 1e-5 * edge for length in lengths for edge in edges))
    update, kept = reference.signguard(as_rows(updates[order]), chosen, *band)
    answer = aggregation.signguard(updates, *band, share, torch.Generator().manual_seed(seed))
    agree(answer, (update, {int(order[i]) for i in kept}), updates)


def test_signguard_leaves_out_turned_signs_that_no_norm_shows() -> None:
    draw = torch.Generator().manual_seed(0)
    updates = 0.3 + torch.randn(10, 2000, generator=draw)
    updates[:3] *= -1
    answer = aggregation.signguard(updates, generator=torch.Generator().manual_seed(1))
    assert answer.kept.tolist() == [False] * 3 + [True] * 7
    updates[:3] *= -20
    assert aggregation.signguard(updates).notes["by_norm"] == 3


@many
@given(st.integers(0, 2**31), st.integers(2, 6), st.sampled_from([1e-4, 1.0, 1e4]))
def test_fldetector_scores_how_far_clients_are_from_their_prediction(seed: int, n: int, size: float) -> None:
    """Gradients of one quadratic, so that steps and changes make a well-behaved matrix."""
    d = 12
    draw = np.random.default_rng(seed)
    curvature = np.diag(draw.uniform(0.5, 2.0, d))
    w = draw.normal(size=d)
    rule, state = reference.FLDetector(20), {}
    for _ in range(5):
        rows = [size * (curvature @ w + 0.2 * draw.normal(size=d)) for _ in range(n)]
        rows = [row.astype(np.float32).astype(np.float64) for row in rows]
        w32 = torch.from_numpy(w).float()
        expected = rule.round(rows, w32.double().numpy())
        assume(rule.condition < 1e4)
        updates = torch.from_numpy(np.array(rows)).float()
        aggregation.fldetector(updates, 20, state=state, parameters=lambda w32=w32: w32)
        for i, score in enumerate(expected):
            assert float(state[f"scores/{i}"].mean()) == pytest.approx(score, rel=1e-3)
        w = w - 0.3 * np.mean(rows, axis=0) / size


def test_fldetector_leaves_out_who_never_does_what_it_did_before() -> None:
    """Honest gradients of one quadratic change with the model; two clients send noise of the same length."""
    d, n = 200, 10
    draw = torch.Generator().manual_seed(0)
    curvature = 0.5 + torch.rand(d, generator=draw)
    own = 0.3 * torch.randn(n, d, generator=draw)
    w = torch.randn(d, generator=draw)
    state: dict[str, Tensor] = {}
    for round_ in range(25):
        updates = curvature * w + own + 0.02 * torch.randn(n, d, generator=draw)
        noise = torch.randn(2, d, generator=draw)
        updates[:2] = noise / noise.norm(dim=1, keepdim=True) * updates[2:].norm(dim=1).mean()
        context = AggregationContext(tuple(range(n)), (1,) * n, generator=draw, state=state, parameters=lambda w=w: w)
        answer = get("fldetector", window=5)(updates, context)
        if round_ < 5:
            assert answer.kept.all()
        w = w - 0.1 * answer.update
    assert answer.kept.tolist() == [False] * 2 + [True] * 8
    assert answer.notes["left_out"] == 2


def test_fldetector_seldom_leaves_out_anybody_where_all_are_alike() -> None:
    """The gap statistic is wrong now and then: a standard error is all that it leaves between one group and two."""
    state: dict[str, Tensor] = {}
    left = 0.0
    for round_ in range(30):
        left += aggregation.fldetector(
            make(round_, 10, 200, kind="shared"), 5, state=state, generator=torch.Generator().manual_seed(round_)
        ).notes["left_out"]
    assert left < 0.1 * 30 * 10


def test_without_parameters_the_last_aggregate_is_the_step() -> None:
    """Steps of any one size give the same prediction: H falls as they grow."""
    told: dict[str, Tensor] = {}
    untold: dict[str, Tensor] = {}
    w = torch.zeros(40)
    for round_ in range(6):
        updates = make(round_, 5, 40, kind="shared")
        where = AggregationContext(tuple(range(5)), (1,) * 5, state=told, parameters=lambda w=w: w)
        answer = get("fldetector")(updates, where)
        aggregation.fldetector(updates, state=untold)
        w = w - 0.01 * answer.update
    for client in range(5):
        assert torch.allclose(told[f"scores/{client}"], untold[f"scores/{client}"], rtol=1e-2)


def test_fldetector_predicts_a_client_that_was_away_over_all_the_steps_it_missed() -> None:
    state: dict[str, Tensor] = {}
    w = torch.ones(6)
    for ids in ([0, 1, 2], [0, 1], [0, 1], [0, 1, 2]):
        updates = w.expand(len(ids), -1) * torch.arange(1, 7)
        aggregation.fldetector(updates, client_ids=ids, state=state, parameters=lambda w=w: w)
        w = w * 0.9
    # Every step goes along w: what the curvature does along it is known, and all are predicted alike.
    assert state["scores/2"].numel() == 1
    assert state["steps"].shape == (3, 6)


def test_a_memory_of_another_model_is_refused() -> None:
    for rule in (aggregation.fldetector, aggregation.foolsgold):
        state: dict[str, Tensor] = {}
        for seed in (0, 1):
            rule(make(seed, 3, 40), state=state)
        with pytest.raises(InputError, match="start with an empty state"):
            rule(make(0, 3, 7), state=state)


@pytest.mark.parametrize("name", ["foolsgold", "fldetector"])
def test_rules_that_remember_clients_refuse_to_follow_buckets(name: str) -> None:
    with pytest.raises(OptionError, match="must know each client's update"):
        parse(["bucketing", name])


@pytest.mark.parametrize("name", ["foolsgold", "fldetector"])
def test_extreme_rounds_leave_a_memory_that_still_works(name: str) -> None:
    state: dict[str, Tensor] = {}
    for round_, size in enumerate([1.0, 1e18, 0.0, 1e-30, 1e18, 1.0, 1.0]):
        updates = make(round_, 6, 50) * torch.tensor([size, 1, 1, 1, 1, -size])[:, None]
        answer = get(name)(updates, AggregationContext(tuple(range(6)), (1,) * 6, state=state))
        assert bool(answer.update.isfinite().all())
        assert not answer.rejected.any()


@many
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8), st.integers(1, 5))
def test_groups_on_a_line_are_the_best_there_are(values: list[float], most: int) -> None:
    totals, cut = groups_on_a_line(np.sort(np.array(values)), most)
    assert len(totals) == min(most, len(values))
    for k, total in enumerate(totals, 1):
        assert total == pytest.approx(reference.best_split(values, k), abs=1e-6)
    if most > 1:
        ordered = sorted(values)
        halves = [ordered[: cut[0]], ordered[cut[0] :]]
        assert sum(float(np.var(half)) * len(half) for half in halves) == pytest.approx(totals[1], abs=1e-6)


def test_two_groups_are_seen_where_there_are_two() -> None:
    draw = torch.Generator().manual_seed(0)
    one = torch.rand(20, generator=draw, dtype=torch.float64)
    assert not upper_group(one, draw).any()
    assert upper_group(torch.cat([one, 5 + one[:4]]), draw).tolist() == [False] * 20 + [True] * 4
    assert not upper_group(torch.ones(5), draw).any()
    assert upper_group(torch.zeros(0), draw).tolist() == []


def test_the_hessian_of_a_quadratic_is_found_along_the_steps() -> None:
    draw = torch.Generator().manual_seed(0)
    curvature = 0.5 + torch.rand(8, generator=draw)
    steps = torch.randn(8, 8, generator=draw)
    found = hessian_product(steps, steps * curvature, steps[-1])
    assert torch.allclose(found, curvature * steps[-1], atol=1e-4)
