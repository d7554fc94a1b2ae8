"""Rules for clients whose data differ: mixing, buckets and clipping around the last aggregate."""

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
from scapegoat.errors import InputError, OptionError
from tests.aggregation.inputs import as_rows, context, make, outnumbered, stacks
from tests.aggregation.test_rules_match_reference import agree
from tests.reference import aggregation as reference

many = settings(max_examples=40, deadline=None)


def drawn(seed: int) -> int:
    """The number that a rule draws from a generator of this seed."""
    return int(torch.randint(2**62, (1,), generator=torch.Generator().manual_seed(seed)))


def clear_neighbours(rows: list[np.ndarray], f: int) -> bool:
    """Whether the (n-f)-th nearest and the next are farther apart than float32 blurs, for every row."""
    for row in rows:
        distances = sorted(reference.norm(row - other) for other in rows)
        size = max(reference.norm(other) for other in rows)
        if f and distances[len(rows) - f] - distances[len(rows) - f - 1] <= 1e-4 * size:
            return False
    return True


@many
@given(stacks(min_rows=2, kinds=("normal", "shared", "sparse")), st.data())
def test_mixing_is_the_mean_of_the_nearest(updates: Tensor, data: st.DataObject) -> None:
    f = data.draw(st.integers(0, (len(updates) - 1) // 2))
    rows = as_rows(updates)
    assume(clear_neighbours(rows, f))
    mixed = reference.nearest_neighbour_mixing(rows, f)
    agree(aggregation.nearest_neighbour_mixing(updates, f), reference.fedavg(mixed), updates)
    piped = parse([{"name": "nearest_neighbour_mixing", "malicious": f}, "median"])(updates)
    agree(piped, reference.median(mixed), updates)


@many
@given(outnumbered(kinds=("normal", "shared")))
def test_mixing_leaves_a_far_minority_out_of_every_honest_mean(case: tuple[Tensor, int]) -> None:
    updates, m = case
    updates = updates.clone()
    n = len(updates)
    updates[n - m :] = 1e4 * torch.nn.functional.normalize(updates[n - m :], dim=1)
    assume(bool(updates[n - m :].norm(dim=1).min() > 0))
    stack = aggregation.Stack(updates, torch.ones(n, dtype=torch.bool), updates.shape[1])
    mixed, _ = get("nearest_neighbour_mixing", malicious=m).transform(stack, context(n, 150))  # type: ignore[attr-defined]
    honest = updates[: n - m]
    assert torch.allclose(mixed.matrix()[: n - m], honest.mean(0).expand(n - m, -1), atol=1e-5 * float(honest.norm()))


@many
@given(stacks(), st.integers(1, 5), st.integers(0, 2**31))
def test_buckets_are_means_of_random_clients(updates: Tensor, size: int, seed: int) -> None:
    n = len(updates)
    ids = [3 * i + 1 for i in range(n)]
    groups = reference.bucketing(as_rows(updates), drawn(seed), ids, size)
    answer = aggregation.bucketing(updates, size, ids, torch.Generator().manual_seed(seed))
    agree(answer, (reference.fedavg([mean for _, mean in groups])[0], set(range(n))), updates)
    assert answer.notes == {"buckets": math.ceil(n / size)}
    where = AggregationContext(tuple(ids), (1,) * n, generator=torch.Generator().manual_seed(seed))
    piped = parse([{"name": "bucketing", "size": size}, "median"])(updates, where)
    agree(piped, (reference.median([mean for _, mean in groups])[0], set(range(n))), updates)


def test_who_is_in_a_bucket_changes_from_round_to_round_and_not_with_the_order_of_the_rows() -> None:
    updates = make(1, 8, 150)
    draw = torch.Generator().manual_seed(0)
    first, second = (aggregation.bucketing(updates, 3, range(8), draw).update for _ in range(2))
    assert not torch.allclose(first, second)
    order = torch.randperm(8)
    again = aggregation.bucketing(updates[order], 3, order.tolist(), torch.Generator().manual_seed(0)).update
    assert torch.allclose(again, first, atol=1e-6)


def test_all_of_a_bucket_are_kept_or_left_out_together_and_the_malformed_are_rejected() -> None:
    updates = make(1, 9, 150, kind="shared")
    updates[4] = math.nan
    updates[7] = 1e6 * updates[0]
    rule = parse([{"name": "bucketing", "size": 2}, {"name": "multi_krum", "malicious": 1, "select": 3}])
    answer = rule(updates, context(9, 150, seed=5))
    good = [0, 1, 2, 3, 5, 6, 7, 8]
    groups = reference.bucketing(as_rows(updates[good]), drawn(5), good, 2)
    (dropped,) = [{good[i] for i in group} for group, _ in groups if good.index(7) in group]
    assert answer.rejected.nonzero().flatten().tolist() == [4]
    assert set((~answer.kept).nonzero().flatten().tolist()) == dropped | {4}
    assert answer.notes == {"buckets": 4, "selected": 3}


def test_buckets_of_buckets_know_all_their_clients() -> None:
    answer = parse([{"name": "bucketing"}, {"name": "bucketing"}, "krum"])(make(1, 12, 150), context(12, 150))
    assert int(answer.kept.sum()) == 4
    assert not answer.rejected.any()


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ([{"name": "bucketing"}, "memory_atm"], "1: memory_atm must know each client's update, but bucketing merges"),
        ([{"name": "bucketing"}, "reputation_atm"], "1: reputation_atm must know"),
        ([{"name": "bucketing"}, {"name": "fedavg", "weighted": True}], "1.weighted: fedavg must know"),
        ([{"name": "bucketing"}, {"name": "dp", "clip": 1.0}], "1.clip: no epsilon would hold after bucketing"),
    ],
)
def test_what_needs_single_clients_refuses_buckets(stages: list[object], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(stages)
    assert str(caught.value).startswith(says)


def test_a_rule_after_buckets_is_checked_and_told_of_for_the_buckets() -> None:
    rule = parse([{"name": "bucketing", "size": 2}, {"name": "atm", "trim": 2}])
    rule.check(9)
    assert rule.trims(10) == 2
    assert rule.trims(8) == 1
    with pytest.raises(OptionError, match=r"^1\.trim: 2 is too many for 4 updates"):
        rule.check(8)
    with pytest.raises(OptionError, match=r"^0\.size: 2 makes one bucket of 2 updates"):
        rule.check(2)


@many
@given(
    st.integers(0, 2**31),
    st.integers(1, 9),
    st.sampled_from([1, 3, 40]),
    st.integers(-6, 6),
    st.none() | st.floats(0.01, 100.0),
    st.integers(1, 4),
)
def test_centered_clipping_over_rounds(
    seed: int, n: int, d: int, exponent: int, radius: float | None, steps: int
) -> None:
    size = 10.0**exponent
    radius = None if radius is None else radius * size
    expected, state = reference.CenteredClipping(radius, steps), {}
    for round_ in range(4):
        updates = make(seed + round_, n, d, size, "shared", spread=100.0)
        answer = aggregation.centered_clipping(updates, radius, steps, state)
        largest = max(float(updates.norm(dim=1).max()), reference.norm(state["centre"].double().numpy()))
        agree(answer, expected.round(as_rows(updates)), torch.full((n, 1), largest))


@many
@given(st.data())
def test_no_minority_moves_the_centre_farther_than_the_median_of_the_honest(data: st.DataObject) -> None:
    """One step of at most the radius per hostile client, whatever it sends, in every round."""
    n, m = 9, 4
    state: dict[str, Tensor] = {}
    for round_ in range(3):
        updates = make(round_, n, 30)
        before = state.get("centre", torch.zeros(30)).clone()
        reach = float((updates[m:] - before).norm(dim=1).max())
        for i in range(m):
            updates[i] = data.draw(st.sampled_from([1e19, -1e19, 1e6, 0.0, 1e-45])) / 30**0.5
        moved = aggregation.centered_clipping(updates, state=state).update - before
        assert float(moved.norm()) <= reach * (1 + 1e-5)
        assert bool(moved.isfinite().all())


def test_a_centre_far_from_all_updates_does_not_overflow() -> None:
    state: dict[str, Tensor] = {}
    for sign in (1, -1, 1):
        answer = aggregation.centered_clipping(torch.full((3, 4), sign * 9e18), iterations=2, state=state)
        assert torch.allclose(answer.update, torch.full((4,), sign * 9e18))


def test_the_aggregate_is_the_callers_and_the_centre_the_rules() -> None:
    state: dict[str, Tensor] = {}
    answer = aggregation.centered_clipping(make(0, 3, 20), state=state)
    before = state["centre"].clone()
    answer.update.add_(1)
    assert torch.equal(state["centre"], before)
    with pytest.raises(InputError, match="remembers 20 parameters, the updates have 7"):
        aggregation.centered_clipping(make(0, 3, 7), state=state)


@many
@given(st.integers(0, 2**31), st.integers(2, 7), st.sampled_from([0.0, 0.5, 0.9, 0.99]), st.integers(-6, 6))
def test_momentum_is_the_running_mean_of_a_client(seed: int, n: int, beta: float, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    past, states = reference.ClientMomentum(beta), ({}, {}, {})  # type: ignore[var-annotated]
    for round_ in range(5):
        ids = tuple(sorted(rng.choice(9, size=n, replace=False).tolist()))
        updates = make(seed + round_, n, 30, 10.0**exponent, "shared", spread=10.0)
        means = past.round(as_rows(updates), ids)
        answer = aggregation.client_momentum(updates, beta, client_ids=ids, state=states[0])
        agree(answer, reference.fedavg(means), updates)
        for state, rule, expected in (
            (states[1], "median", reference.median(means)),
            (states[2], {"name": "norm_clipping"}, reference.norm_clipping(means, None)),
        ):
            stages = [{"name": "client_momentum", "beta": beta}, rule]
            agree(parse(stages)(updates, AggregationContext(ids, (1,) * n, state=state)), expected, updates)


def test_momentum_before_a_rule_with_memory_leaves_both_their_own() -> None:
    state: dict[str, Tensor] = {}
    for round_ in range(3):
        where = AggregationContext((0, 1, 2, 3), (1,) * 4, state=state)
        parse(["client_momentum", "reputation_atm"])(make(round_, 4, 150), where)
    kinds = {key.partition("/")[0] for key in state}
    assert kinds == {"momentum", "updates", "seen", "direction", "reputation"}


def test_momentum_must_know_each_client() -> None:
    with pytest.raises(OptionError, match="1: client_momentum must know each client's update, but bucketing merges"):
        parse(["bucketing", "client_momentum", "median"])


def test_momentum_of_another_model_is_refused() -> None:
    state: dict[str, Tensor] = {}
    aggregation.client_momentum(make(0, 3, 150), state=state)
    with pytest.raises(InputError, match="client_momentum remembers client 0 with 150 parameters"):
        aggregation.client_momentum(make(0, 3, 7), state=state)
