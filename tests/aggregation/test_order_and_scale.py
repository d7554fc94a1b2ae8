"""The order of the rows does not matter, nor the unit of the updates where nothing else has one."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.aggregation import get, registry
from tests.aggregation.inputs import context, make

N, D = 15, 150

# With few updates left, Krum has one neighbour to score by, and two that are each other's nearest tie exactly: bulyan
# is given enough not to get there. Error rates tie often too, so fang is asked for its losses.
OPTIONS = {"fang": {"method": "lfr"}, "bulyan": {"malicious": 3}}

# The noise of dp has a size of its own; so have the server's data, which fltrust, fang and deepsight's probe look at.
SERVER = ("deepsight", "fang", "fltrust")
SCALES = [name for name in registry.names() if name not in ("dp", *SERVER)]


@pytest.mark.parametrize("name", registry.names())
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), kind=st.sampled_from(["normal", "shared"]))
def test_permuting_rows_permutes_kept_and_nothing_else(name: str, seed: int, kind: str) -> None:
    updates = make(seed, N, D, kind=kind, spread=10.0)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
    rule = get(name, **OPTIONS.get(name, {}))
    plain = rule(updates, context(N, D, seed=seed))
    permuted = rule(updates[order], context(N, D, ids=tuple(order.tolist()), seed=seed))
    assert torch.equal(permuted.kept, plain.kept[order])
    assert torch.allclose(permuted.update, plain.update, rtol=1e-5, atol=1e-6)
    assert not permuted.rejected.any()


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("exponent", [-16, 14])
def test_scaling_all_updates_scales_the_result(name: str, exponent: int) -> None:
    """By a power of two, so that no rounding differs: sizes near 1e-5 and 1e5."""
    updates = make(7, N, D, kind="shared", spread=10.0)
    factor = 2.0**exponent
    plain = get(name)(updates, context(N, D))
    scaled = get(name)(updates * factor, context(N, D))
    assert torch.equal(scaled.kept, plain.kept)
    assert torch.allclose(scaled.update / factor, plain.update, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("exponent", [-16, 14])
def test_scaling_all_updates_scales_deepsight_without_its_probe(exponent: int) -> None:
    updates = make(7, N, D, kind="shared", spread=10.0)
    factor = 2.0**exponent
    server = dataclasses.replace(context(N, D), output_probe=None)
    plain, scaled = get("deepsight")(updates, server), get("deepsight")(updates * factor, server)
    assert torch.equal(scaled.kept, plain.kept)
    assert torch.allclose(scaled.update / factor, plain.update, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SERVER)
@pytest.mark.parametrize("exponent", [-16, 14])
def test_rules_that_ask_the_server_scale_only_if_its_answers_do(name: str, exponent: int) -> None:
    """The server's goal, root update and probe are rescaled together with the updates: a change of unit everywhere."""
    updates = make(7, N, D, kind="shared", spread=10.0)
    factor = 2.0**exponent
    plain = get(name)(updates, context(N, D))
    scaled = get(name)(updates * factor, context(N, D, size=factor))
    assert torch.equal(scaled.kept, plain.kept)
    assert torch.allclose(scaled.update / factor, plain.update, rtol=1e-5, atol=1e-6)


def test_fang_judges_longer_updates_otherwise() -> None:
    """What a step of that length does to the validation loss decides, so the unit matters."""
    updates = make(7, N, D, kind="shared", spread=10.0)
    kept = [get("fang", method="lfr")(updates * factor, context(N, D)).kept for factor in (2.0**-16, 2.0**14)]
    assert not torch.equal(*kept)


def test_fltrust_takes_its_length_from_the_root_update_alone() -> None:
    updates = make(7, N, D, kind="shared", spread=10.0)
    plain = get("fltrust")(updates, context(N, D))
    assert torch.allclose(get("fltrust")(updates * 1000, context(N, D)).update, plain.update, rtol=1e-5, atol=1e-7)


def test_the_caller_keeps_its_updates() -> None:
    updates = make(1, N, D, kind="shared", spread=10.0)
    before = updates.clone()
    for name in registry.names():
        update = get(name)(updates, context(N, D)).update
        update += 1
        assert torch.equal(updates, before), name
