"""Records that are mostly zeros take another route to the same gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scapegoat.gradients import GradientOracle, client_gradients
from scapegoat.gradients.products import SparseRows, self_products
from scapegoat.models.base import FlatModel
from tests.reference.gradients import sample_gradients


def records(samples: int, features: int, density: float, binary: bool, seed: int) -> Tensor:
    torch.manual_seed(seed)
    here = torch.rand(samples, features) < density
    return here.float() if binary else here * torch.randn(samples, features)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 20), st.integers(64, 100), st.integers(1, 150), st.floats(0, 0.2), st.booleans(), st.integers(0, 999)
)
def test_products_with_a_weight_equal_the_dense_ones(
    samples: int, features: int, width: int, density: float, binary: bool, seed: int
) -> None:
    a = records(samples, features, density, binary, seed)
    weight, delta = torch.randn(width, features), torch.randn(samples, width)
    sparse = SparseRows(a)
    torch.testing.assert_close(sparse.times(weight), a @ weight.T, rtol=1e-4, atol=1e-4)
    rows = slice(samples // 3, samples - samples // 4)
    out = torch.full((width, features), torch.nan)
    sparse.weight_gradient(delta[rows], rows, out)
    torch.testing.assert_close(out, delta[rows].T @ a[rows], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("binary", [True, False])
def test_gradients_equal_autograd_and_the_sparse_route_was_taken(binary: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = 0
    ordinary = SparseRows.times

    def counting(self: SparseRows, weight: Tensor) -> Tensor:
        nonlocal looked_up
        looked_up += 1
        return ordinary(self, weight)

    monkeypatch.setattr(SparseRows, "times", counting)
    x, y = records(12, 90, 0.08, binary, 0), torch.arange(12) % 4
    model = FlatModel(nn.Sequential(nn.Linear(90, 70), nn.ReLU(), nn.Linear(70, 4)), (90,), 4)
    vector = model.initial()
    want = sample_gradients(model, vector, x, y)
    oracle = GradientOracle(model, vector)
    have = oracle.per_sample(x, y)
    assert looked_up > 0
    vectors, weights = torch.randn(3, model.d), torch.randn(12)
    torch.testing.assert_close(have.gram().float(), want @ want.T, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(have.dot(vectors).float(), want @ vectors.T, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(have.combine(weights), weights @ want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(oracle.mean(x, y), want.mean(0), rtol=1e-4, atol=1e-6)
    out = torch.empty(2, model.d)
    client_gradients(model, vector, x, y, [5, 7], out)
    torch.testing.assert_close(out, torch.stack([want[:5].mean(0), want[5:].mean(0)]), rtol=1e-4, atol=1e-6)


def test_dense_narrow_or_strided_inputs_stay_dense() -> None:
    assert SparseRows.of(torch.ones(5, 100)) is None
    assert SparseRows.of(torch.zeros(5, 10)) is None
    assert SparseRows.of(torch.zeros(100, 5).T) is None
    assert SparseRows.of(torch.zeros(5, 100)) is not None


@given(st.integers(1, 80), st.integers(0, 40))
@settings(max_examples=20, deadline=None)
def test_self_products_are_symmetric_and_right(rows: int, width: int) -> None:
    matrix = torch.randn(rows, width)
    have = self_products(matrix)
    assert torch.equal(have, have.T)
    torch.testing.assert_close(have, matrix @ matrix.T, rtol=1e-4, atol=1e-4)
