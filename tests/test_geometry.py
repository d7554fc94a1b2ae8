"""Angles, norms and Gram matrices against float64, from tiny to huge and from orthogonal to parallel."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat import geometry
from scapegoat.chunked_sums import CHUNK
from tests.aggregation.inputs import as_rows, make, stacks
from tests.reference import aggregation as reference


@settings(max_examples=60, deadline=None)
@given(stacks())
def test_gram_equals_float64(updates: torch.Tensor) -> None:
    exact = updates.double() @ updates.double().T
    size = updates.double().norm(dim=1)
    assert torch.all((geometry.gram(updates) - exact).abs() <= 1e-6 * size[:, None] * size[None, :])


@settings(max_examples=60, deadline=None)
@given(stacks(min_rows=2))
def test_angles_and_distances_equal_the_plain_loops(updates: torch.Tensor) -> None:
    rows = as_rows(updates)
    gram = geometry.gram(updates)
    theta, squared = geometry.angles(gram), geometry.squared_distances(gram)
    for i in range(len(rows)):
        for j in range(len(rows)):
            if i != j:
                assert float(theta[i, j]) == pytest.approx(reference.angle(rows[i], rows[j]), abs=5e-6)
                difference = rows[i] - rows[j]
                assert float(squared[i, j]) == pytest.approx(reference.dot(difference, difference), rel=2e-4)
    assert geometry.mean_angles(gram).tolist() == pytest.approx(reference.mean_angles(rows), abs=5e-6)
    assert geometry.norms(gram).tolist() == pytest.approx([reference.norm(r) for r in rows], rel=1e-6)


@pytest.mark.parametrize("d", [1, CHUNK - 1, CHUNK, 3 * CHUNK + 5])
def test_chunks_cover_every_coordinate(d: int) -> None:
    updates = make(1, 4, d)
    exact = updates.double() @ updates.double().T
    assert torch.allclose(geometry.gram(updates), exact, rtol=0, atol=1e-6 * float(exact.max()))
    assert torch.allclose(geometry.gram(list(updates)), exact, rtol=0, atol=1e-6 * float(exact.max()))
    assert torch.allclose(geometry.squared_norms(updates), exact.diagonal(), rtol=1e-6)
    assert torch.allclose(geometry.products(updates, list(updates[:2])), exact[:, :2], atol=1e-6 * float(exact.max()))


@pytest.mark.parametrize("separation", [1e-2, 1e-3, 1e-4, 1e-5])
def test_nearly_parallel_vectors_keep_their_angle(separation: float) -> None:
    base = torch.randn(5000, generator=torch.Generator().manual_seed(0)).double()
    other = torch.randn(5000, generator=torch.Generator().manual_seed(1)).double()
    other -= base * (base @ other) / (base @ base)
    turned = base / base.norm() + math.tan(separation) * other / other.norm()
    for sign in (1.0, -1.0):
        pair = torch.stack([1e3 * base, sign * turned]).float()
        truth = reference.angle(*as_rows(pair))
        assert float(geometry.angles(geometry.gram(pair))[0, 1]) == pytest.approx(truth, abs=2e-8)


@pytest.mark.parametrize("size", [1e-44, 1e-38, 1e-25, 1e-12, 1.0, 1e12, 1e18])
def test_angles_do_not_depend_on_size(size: float) -> None:
    directions = torch.tensor([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
    tiny = directions.clone()
    tiny[0] *= size
    theta = geometry.angles(geometry.gram(tiny))
    assert theta[0].tolist() == pytest.approx([0, math.pi / 4, math.pi], abs=1e-6)


def test_a_zero_vector_is_orthogonal_to_everything() -> None:
    theta = geometry.angles(geometry.gram(torch.tensor([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])))
    assert theta[0, 1] == theta[0, 2] == theta[1, 2] == pytest.approx(math.pi / 2)


def test_a_malformed_row_spoils_only_its_own_entries() -> None:
    updates = make(0, 5, 100)
    clean = geometry.gram(updates[[0, 2, 4]])
    updates[1, 7] = math.nan
    updates[3] = 3e38
    spoilt = geometry.gram(updates)
    assert torch.equal(spoilt[[0, 2, 4]][:, [0, 2, 4]].isfinite(), torch.ones(3, 3, dtype=torch.bool))
    assert torch.allclose(spoilt[[0, 2, 4]][:, [0, 2, 4]], clean, rtol=1e-6)
    assert not spoilt[1, 1].isfinite()
    assert not spoilt[3, 3].isfinite()
    assert geometry.squared_norms(updates).isfinite().tolist() == [True, False, True, False, True]


@given(st.integers(0, 3))
def test_no_rows_and_no_columns_are_allowed(n: int) -> None:
    assert geometry.gram(torch.empty(n, 0)).tolist() == torch.zeros(n, n).tolist()
    assert geometry.gram([]).shape == (0, 0)
    assert geometry.squared_norms(torch.empty(n, 0)).tolist() == [0.0] * n


@pytest.mark.parametrize("n", [47, 48, 49, 101])
def test_many_rows_go_in_strips(n: int) -> None:
    updates = make(2, n, 5000)
    exact = updates.double() @ updates.double().T
    assert torch.allclose(geometry.gram(updates), exact, rtol=0, atol=1e-6 * float(exact.max()))
