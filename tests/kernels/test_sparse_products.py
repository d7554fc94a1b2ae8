"""Records that are mostly zeros take another route to the same gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scapegoat.gradients import GradientOracle, client_gradients
from scapegoat.kernels import sparse_products as products
from scapegoat.kernels.sparse_products import InputFacts, SparseRows, facts
from scapegoat.modelling.flat_model import FlatModel
from tests.reference.gradients import sample_gradients


def records(samples: int, features: int, density: float, binary: bool, seed: int) -> Tensor:
    torch.manual_seed(seed)
    here = torch.rand(samples, features) < density
    return here.float() if binary else here * torch.randn(samples, features)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look up even where the dense product would be faster, in strips of a few units."""
    monkeypatch.setattr(SparseRows, "pays", lambda *_: True)
    monkeypatch.setattr("scapegoat.kernels.sparse_products.STRIP", 16)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(1, 20), st.integers(1, 100), st.integers(1, 150), st.floats(0, 0.2), st.booleans(), st.integers(0, 999)
)
def test_products_with_a_weight_equal_the_dense_ones(
    always: None, samples: int, features: int, width: int, density: float, binary: bool, seed: int
) -> None:
    a = records(samples, features, density, binary, seed)
    weight, delta = torch.randn(width, features), torch.randn(samples, width)
    sparse = SparseRows.of(a)
    torch.testing.assert_close(sparse.times(a, weight), a @ weight.T, rtol=1e-4, atol=1e-4)
    ends = sorted({1 + samples // 3, max(1, samples - samples // 4), samples})
    for cut in (ends, [samples], ends[:1]):
        out = [torch.full((width, features), torch.nan) for _ in cut]
        sparse.weight_gradients(a, delta, cut, out)
        for have, start, end in zip(out, [0, *cut], cut, strict=False):
            torch.testing.assert_close(have, delta[start:end].T @ a[start:end], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("binary", [True, False])
def test_gradients_equal_autograd_and_rows_were_looked_up(
    always: None, binary: bool, inplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = 0
    ordinary = products._sums

    def counting(*args: Tensor) -> Tensor:
        nonlocal looked_up
        looked_up += 1
        return ordinary(*args)

    monkeypatch.setattr(products, "_sums", counting)
    x, y = records(12, 90, 0.08, binary, 0), torch.arange(12) % 4
    model = FlatModel(nn.Sequential(nn.Linear(90, 70), nn.ReLU(inplace), nn.Linear(70, 4)), (90,), 4)
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


def test_dense_strided_or_empty_inputs_stay_dense() -> None:
    assert InputFacts(torch.ones(5, 100)).sparse is None
    assert InputFacts(torch.zeros(100, 5).T).sparse is None
    assert InputFacts(torch.zeros(0, 5)).sparse is None
    assert InputFacts(torch.zeros(5, 100)).sparse is not None


def test_small_products_stay_dense() -> None:
    sparse = SparseRows.of(records(64, 446, 0.1, True, 0))
    assert not sparse.pays(slice(0, 2), 10, 5e4)
    assert SparseRows.of(records(300, 2000, 0.05, True, 0)).pays(slice(None), 512, 5e4)


def test_facts_are_remembered_until_the_tensor_changes_or_dies() -> None:
    x = records(10, 80, 0.1, True, 0)
    before = facts(x)
    assert facts(x) is before
    x[0] = 0
    x[1, 3] = 2
    assert facts(x) is not before
    sparse = facts(x).sparse
    assert sparse is not None
    weight = torch.randn(4, 80)
    torch.testing.assert_close(sparse.times(x, weight), x @ weight.T)
    known = len(products._FACTS)
    del x
    assert len(products._FACTS) < known
