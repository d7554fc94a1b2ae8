"""Malformed updates are set aside and reported; they are never averaged in, and they never stop a round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scapegoat.aggregation import Aggregate, AggregationContext, Rule, get, memory_atm, parse, registry
from scapegoat.errors import InputError
from tests.aggregation.inputs import context, make

N, D = 10, 150
PIPELINE = [{"name": "norm_clipping"}, {"name": "top_k"}, {"name": "dp", "sigma": 0.01}, {"name": "atm"}]
RULES = [*registry.names(), "pipeline"]


def rule_of(name: str) -> Rule:
    return parse(PIPELINE) if name == "pipeline" else get(name)


def aggregate(name: str, updates: Tensor | list[Tensor], ids: tuple[int, ...] | None = None, d: int = D) -> Aggregate:
    answer = rule_of(name)(updates, context(len(updates), d, ids))
    assert answer.update.shape == (d,)
    assert answer.update.dtype == torch.float32
    assert bool(answer.update.isfinite().all())
    assert not bool((answer.kept & answer.rejected).any())
    assert all(math.isfinite(v) for v in answer.notes.values())
    return answer


@pytest.mark.parametrize("name", RULES)
def test_nan_inf_and_huge_clients_change_nothing_but_their_absence(name: str) -> None:
    updates = make(5, N, D, kind="shared", spread=3.0)
    bad, good = [1, 4, 8], [0, 2, 3, 5, 6, 7, 9]
    hostile = updates.clone()
    hostile[1, 17] = math.nan
    hostile[4, 0] = -math.inf
    hostile[8] = 3e38
    answer = aggregate(name, hostile)
    honest = aggregate(name, updates[good], tuple(good))
    assert answer.rejected.nonzero().flatten().tolist() == bad
    assert torch.equal(answer.kept[good], honest.kept)
    assert torch.allclose(answer.update, honest.update, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_wrong_length_and_type_are_the_senders_fault(name: str) -> None:
    updates = list(make(5, 7, D, kind="shared", spread=3.0))
    honest = aggregate(name, torch.stack(updates))
    noise: list[Tensor] = [
        torch.zeros(D - 1),
        torch.zeros(0),
        torch.zeros(D, 1),
        torch.zeros(D, dtype=torch.int64),
        torch.zeros(D, dtype=torch.complex64),
        torch.tensor(1.0),
        torch.zeros(D).to_sparse(),
        None,  # type: ignore[list-item]
        "update",  # type: ignore[list-item]
    ]
    ids = (*range(7), *range(100, 100 + len(noise)))
    answer = aggregate(name, [*updates, *noise], ids)
    assert answer.rejected.tolist() == [False] * 7 + [True] * len(noise)
    assert torch.equal(answer.kept[:7], honest.kept)
    assert torch.allclose(answer.update, honest.update, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_a_round_without_a_usable_update_changes_nothing_and_says_so(name: str) -> None:
    for updates in (torch.full((4, D), math.nan), [torch.zeros(3)] * 4, torch.empty(0, D), []):
        answer = aggregate(name, updates)
        assert not answer.update.any()
        assert not answer.kept.any()
        assert answer.rejected.tolist() == [True] * len(updates)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("left", [1, 2, 3])
def test_all_but_a_few_malformed(name: str, left: int) -> None:
    updates = make(5, N, D, kind="shared")
    updates[left:] = math.inf
    answer = aggregate(name, updates)
    assert answer.rejected.tolist() == [False] * left + [True] * (N - left)


@pytest.mark.parametrize("name", [n for n in RULES if n not in ("fltrust", "dp", "flame", "top_k", "pipeline")])
def test_one_client_only_is_its_own_mean(name: str) -> None:
    update = make(5, 1, D)
    answer = aggregate(name, update)
    assert answer.kept.tolist() == [True]
    assert torch.allclose(answer.update, update[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "row",
    [torch.zeros(D), torch.full((D,), 1e-45), torch.full((D,), 1e-30), torch.full((D,), 1e15), -torch.ones(D)],
    ids=["zero", "denormal", "tiny", "large", "opposite"],
)
def test_extreme_but_well_formed_rows_are_aggregated(name: str, row: Tensor) -> None:
    updates = make(5, N, D, kind="shared")
    updates[3] = row
    assert not aggregate(name, updates).rejected.any()
    assert not aggregate(name, row.repeat(N, 1)).rejected.any()


@settings(max_examples=80, deadline=None)
@given(data=st.data(), name=st.sampled_from(RULES))
def test_no_mixture_of_special_values_raises(data: st.DataObject, name: str) -> None:
    """Whatever ten clients send: finite answers, and only malformed rows rejected."""
    values = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 1e-20, 1e20, 1.8e19, 3e38, math.nan, math.inf, -math.inf]
    n = data.draw(st.integers(1, 10))
    updates = torch.stack([torch.full((D,), data.draw(st.sampled_from(values))) for _ in range(n)])
    updates[:, :40] += data.draw(st.sampled_from([0.0, 1e-3])) * make(1, n, 40)
    answer = aggregate(name, updates)
    squares = updates.double().square().sum(1)
    assert answer.rejected.tolist() == [not s <= torch.finfo(torch.float32).max for s in squares.tolist()]


def test_the_servers_length_decides_against_any_majority() -> None:
    """Three clients agree on a wrong length; the layout says which one is expected."""
    honest = make(5, 2, D)
    answer = aggregate("fedavg", [torch.ones(D + 1)] * 3 + list(honest))
    assert answer.rejected.tolist() == [True, True, True, False, False]
    assert torch.allclose(answer.update, honest.mean(0), atol=1e-6)
    assert aggregate("fedavg", torch.ones(3, D + 1)).rejected.all()


def test_malformed_updates_never_enter_the_memory() -> None:
    state: dict[str, Tensor] = {}
    updates = make(5, 4, D)
    updates[2] = math.nan
    memory_atm(updates, client_ids=[10, 11, 12, 13], state=state)
    assert sorted(state) == sorted(f"{key}/{c}" for key in ("direction", "count", "seen") for c in (10, 11, 13))
    assert all(bool(t.isfinite().all()) for t in state.values())


def test_hostile_sample_counts_cannot_break_the_weighted_mean() -> None:
    from scapegoat.aggregation import fedavg

    updates = make(5, 4, D)
    answer = fedavg(updates, weights=[1, math.nan, -5, math.inf])
    assert answer.kept.tolist() == [True, False, False, False]
    assert torch.allclose(answer.update, updates[0])
    assert torch.allclose(fedavg(updates, weights=[0, 0, 0, 0]).update, updates.mean(0), atol=1e-6)
    assert bool(fedavg(updates, weights=[1e308] * 4).update.isfinite().all())


def test_a_sample_count_beyond_all_floats_weighs_nothing() -> None:
    updates = make(5, 3, D)
    counts = AggregationContext(client_ids=(0, 1, 2), sample_counts=(1, 10**400, -(10**400)))
    answer = get("fedavg", weighted=True)(updates, counts)
    assert answer.kept.tolist() == [True, False, False]
    assert torch.allclose(answer.update, updates[0])


@pytest.mark.parametrize(
    ("updates", "says"),
    [
        (torch.zeros(3), r"torch.float32 of shape \(3,\)"),
        (torch.zeros(2, 3, 4), r"torch.float32 of shape \(2, 3, 4\)"),
        (torch.zeros(2, 3, dtype=torch.bool), "torch.bool"),
        (torch.zeros(2, 3, dtype=torch.complex64), "torch.complex64"),
        (torch.zeros(2, 3).to_sparse(), r"torch.float32 of shape \(2, 3\)"),
        (np.zeros(3), r"float64 of shape \(3,\)"),
        (np.zeros((2, 3), dtype=complex), "complex128"),
        (np.array([["a", "b"]]), "<U1"),
        (np.array([[object()]]), "object"),
        ("updates", "type str"),
        ({0: torch.zeros(3)}, "type dict"),
        (None, "type NoneType"),
        ((row for row in torch.zeros(2, 3)), "type generator"),
    ],
)
def test_a_stack_that_is_no_stack_is_the_callers_fault(updates: Any, says: str) -> None:
    with pytest.raises(InputError, match=rf"{says}.*\[n, d\].* is expected"):
        get("fedavg")(updates)


def test_a_context_for_other_rows_is_the_callers_fault() -> None:
    with pytest.raises(InputError, match="3 updates came with 2 client ids"):
        get("fedavg")(make(1, 3, D), context(2, D))
