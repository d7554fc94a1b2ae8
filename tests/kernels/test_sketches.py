"""Sketches keep angles and lengths as well as they say, whatever the vectors and however they are handed over."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat import geometry
from scapegoat.kernels.sketches import Sketch, _draws
from tests.reference.sketches import sketched


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(1, 64), st.integers(0, 99), st.sampled_from([1.0, 1e-20, 1e18]))
def test_equals_the_loop_over_coordinates(d: int, width: int, seed: int, size: float) -> None:
    rows = size * torch.randn(3, d, generator=torch.Generator().manual_seed(seed))
    signs, turns = _draws(d, width, seed)
    for row, have in zip(rows, Sketch(d, width, seed)(rows), strict=True):
        expected = sketched(row, signs.tolist(), turns, width)
        torch.testing.assert_close(have.double(), expected, rtol=1e-4, atol=1e-5 * size)


def test_a_row_is_sketched_alike_alone_among_others_and_in_a_list() -> None:
    rows = torch.randn(5, 10_000, generator=torch.Generator().manual_seed(0))
    sketch = Sketch(10_000, 256, 3)
    together = sketch(rows)
    assert torch.equal(together, sketch(list(rows)))
    assert torch.equal(together[2:3], sketch(rows[2:3]))


def test_the_same_seed_is_the_same_sketch_and_another_is_not() -> None:
    rows = torch.randn(2, 5_000, generator=torch.Generator().manual_seed(0))
    first = Sketch(5_000, 64, 1)(rows)
    _draws.cache_clear()
    assert torch.equal(first, Sketch(5_000, 64, 1)(rows))
    assert not torch.equal(first, Sketch(5_000, 64, 2)(rows))


def few_large(draw: torch.Generator, d: int) -> torch.Tensor:
    """Most of the length in one coordinate of a thousand, as in gradients of output layers."""
    rows = torch.randn(30, d, generator=draw)
    rows[:, :: d // 200] *= 100
    return rows


def one_stripe(draw: torch.Generator, d: int) -> torch.Tensor:
    """Every coordinate that has a value lies at the same place of its block."""
    rows = torch.zeros(30, d)
    rows[:, 5::512] = torch.randn(30, len(range(5, d, 512)), generator=draw)
    return rows


def shared(draw: torch.Generator, d: int) -> torch.Tensor:
    return torch.randn(d, generator=draw) + torch.randn(30, d, generator=draw)


@pytest.mark.parametrize("make", [few_large, one_stripe, shared])
def test_angles_are_off_by_the_stated_root_mean_square_at_most(make) -> None:  # type: ignore[no-untyped-def]
    d, width = 200_000, 512
    errors = []
    for seed in range(6):
        rows = make(torch.Generator().manual_seed(seed), d)
        theta = geometry.angles(geometry.gram(rows))
        short = geometry.angles(geometry.gram(Sketch(d, width, seed)(rows)))
        pairs = ~torch.eye(30, dtype=torch.bool)
        errors.append(((short - theta) / theta.sin())[pairs])
    error = torch.cat(errors)
    assert float(error.square().mean().sqrt()) * math.sqrt(width) < 1.15


def test_what_is_not_a_number_spoils_its_own_row_only() -> None:
    rows = torch.randn(3, 1_000, generator=torch.Generator().manual_seed(0))
    clean = Sketch(1_000, 32, 0)(rows)
    rows[1, 7] = torch.nan
    spoilt = Sketch(1_000, 32, 0)(rows)
    assert spoilt[1].isnan().any()
    assert torch.equal(spoilt[[0, 2]], clean[[0, 2]])
