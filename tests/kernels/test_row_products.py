"""Inner products of rows are the same by every route, up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scapegoat.kernels import row_products
from scapegoat.kernels.routes import RowProduct
from scapegoat.kernels.row_products import self_products, vector_products

ROUTES: tuple[RowProduct | None, ...] = (None, "blas", "blocks")


def exact(a: Tensor, b: Tensor) -> Tensor:
    """One sum at a time, in float64."""
    return torch.tensor([[np.dot(x, y) for y in b.double().numpy()] for x in a.double().numpy()]).view(len(a), len(b))


def close(have: Tensor, a: Tensor, b: Tensor) -> None:
    """Within the rounding of sums of float32 products."""
    room = 1e-6 * a.double().norm(dim=1)[:, None] * b.double().norm(dim=1)[None, :] + 1e-30
    assert ((have.double() - exact(a, b)).abs() <= room).all()


@pytest.mark.parametrize("route", ROUTES)
@given(st.integers(1, 160), st.integers(0, 40), st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=30, deadline=None)
def test_self_products_are_symmetric_and_right(route: RowProduct | None, rows: int, width: int, size: float) -> None:
    matrix = size * torch.randn(rows, width)
    have = self_products(matrix, route)
    assert torch.equal(have, have.T)
    close(have, matrix, matrix)


@pytest.mark.parametrize("route", ROUTES)
@given(st.integers(1, 160), st.integers(0, 40), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_products_with_parts_of_longer_vectors_are_right(
    route: RowProduct | None, rows: int, width: int, vectors: int
) -> None:
    matrix, part = torch.randn(rows, width), torch.randn(vectors, width + 7)[:, 3 : 3 + width]
    close(vector_products(matrix, part, route), matrix, part)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_broken_row_shows_in_its_own_products_and_in_no_others(route: RowProduct | None, value: float) -> None:
    matrix = torch.ones(100, 20)
    matrix[80, 5] = value
    have = self_products(matrix, route)
    good = torch.arange(100) != 80
    assert (have[good][:, good] == 20).all()
    assert not have[80, 80].isfinite()
    assert (have[80, good].isfinite() == (value == 1e30)).all()


def test_every_row_may_lie_apart_from_the_next() -> None:
    matrix = torch.randn(90, 30)[:, ::2]
    for route in ROUTES:
        close(self_products(matrix, route), matrix, matrix)


def test_without_onednn_the_route_by_blocks_is_not_offered_and_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.randn(90, 30)
    monkeypatch.setattr(row_products, "_onednn", lambda: None)
    assert row_products.row_products() == ["blas"]
    assert torch.equal(self_products(matrix, "blocks"), self_products(matrix))
    assert torch.equal(vector_products(matrix, matrix[:3], "blocks"), matrix @ matrix[:3].T)
