"""The pruned sorting networks give exactly what a sort gives."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.combining import sorting_network
from scapegoat.combining.sorting_network import NARROW, _merge_sort, comparators, in_order, middle_mean, operations
from scapegoat.combining.stack import stacked


@pytest.mark.parametrize("n", range(2, 11))
def test_every_input_of_zeros_and_ones(n: int) -> None:
    """By the zero-one principle, a network that sorts zeros and ones sorts everything."""
    columns = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n))).T.contiguous()
    for drop in range(1, (n - 1) // 2 + 1):
        expected = columns.sort(0).values[drop : n - drop].mean(0)
        assert torch.allclose(middle_mean(stacked(columns), drop), expected, atol=1e-6)
    buffers = list(torch.empty(n + 2, columns.shape[1]).unbind(0))
    assert torch.equal(torch.stack(in_order(list(columns), buffers)), columns.sort(0).values)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 70), st.data())
def test_middle_values_equal_those_of_a_sort(n: int, data: st.DataObject) -> None:
    drop = data.draw(st.integers(1, (n - 1) // 2))
    values = torch.randn(n, 33, generator=torch.Generator().manual_seed(n * 100 + drop))
    expected = values.double().sort(0).values[drop : n - drop].mean(0)
    assert torch.allclose(middle_mean(stacked(values), drop).double(), expected, atol=1e-6)


def test_columns_beyond_one_block_and_several_threads() -> None:
    values = torch.randn(5, 3 * NARROW + 7)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = middle_mean(stacked(values), 2)
        torch.set_num_threads(1)
        one = middle_mean(stacked(values), 2)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, values.median(0).values)
    assert torch.equal(one, two)


def test_an_outlier_leaves_no_trace() -> None:
    """Outliers are cut away, not subtracted: nothing of 1e18 remains in the sum."""
    values = torch.tensor([[1e18], [1.0], [2.0], [3.0], [-1e18]])
    assert middle_mean(stacked(values), 1).tolist() == [2.0]


@pytest.mark.parametrize(("n", "drop"), [(10, 1), (10, 4), (50, 1), (50, 24), (200, 10)])
def test_pruning_saves_work(n: int, drop: int) -> None:
    assert operations(comparators(n, drop)) < 2 * len(_merge_sort(n))


@pytest.mark.parametrize("width", [1 << 17, 1 << 14, 1000])
def test_however_many_columns_are_taken_at_a_time_the_result_is_the_same_to_the_bit(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = torch.randn(7, 300_000, generator=torch.Generator().manual_seed(0))
    # Often enough for every width to be tried, and one to be chosen.
    answers = [middle_mean(stacked(updates), 2) for _ in range(3)]
    monkeypatch.setattr(sorting_network, "WIDTHS", (width,))
    monkeypatch.setattr(sorting_network, "NARROW", width)
    assert all(torch.equal(middle_mean(stacked(updates), 2), answer) for answer in answers)
