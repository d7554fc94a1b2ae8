"""The pruned sorting networks give exactly what a sort gives."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.combining.sorting_network import NARROW, _merge_sort, in_order, middle_mean, operations, plan
from scapegoat.combining.stack import collect


@pytest.mark.parametrize("n", range(2, 11))
def test_every_input_of_zeros_and_ones(n: int) -> None:
    """By the zero-one principle, a network that sorts zeros and ones sorts everything."""
    columns = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n))).T.contiguous()
    for drop in range(1, (n - 1) // 2 + 1):
        expected = columns.sort(0).values[drop : n - drop].mean(0)
        assert torch.allclose(middle_mean(collect(columns), drop), expected, atol=1e-6)
    buffers = list(torch.empty(n + 2, columns.shape[1]).unbind(0))
    assert torch.equal(torch.stack(in_order(list(columns), buffers)), columns.sort(0).values)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 70), st.data())
def test_middle_values_equal_those_of_a_sort(n: int, data: st.DataObject) -> None:
    drop = data.draw(st.integers(1, (n - 1) // 2))
    values = torch.randn(n, 33, generator=torch.Generator().manual_seed(n * 100 + drop))
    expected = values.double().sort(0).values[drop : n - drop].mean(0)
    assert torch.allclose(middle_mean(collect(values), drop).double(), expected, atol=1e-6)


def test_columns_beyond_one_block_and_several_threads() -> None:
    values = torch.randn(5, 3 * NARROW + 7)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = middle_mean(collect(values), 2)
        torch.set_num_threads(1)
        one = middle_mean(collect(values), 2)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, values.median(0).values)
    assert torch.equal(one, two)


def test_an_outlier_leaves_no_trace() -> None:
    """Outliers are cut away, not subtracted: nothing of 1e18 remains in the sum."""
    values = torch.tensor([[1e18], [1.0], [2.0], [3.0], [-1e18]])
    assert middle_mean(collect(values), 1).tolist() == [2.0]


@pytest.mark.parametrize(("n", "drop"), [(10, 1), (10, 4), (50, 1), (50, 24), (200, 10)])
def test_pruning_saves_work(n: int, drop: int) -> None:
    assert operations(plan(n, drop)) < 2 * len(_merge_sort(n))
