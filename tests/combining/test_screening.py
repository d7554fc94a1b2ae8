"""Rows are screened the same by whichever way a rule has it done."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.combining.stack import checked, stacked

VALUES = [0.0, 1.0, -1e-45, 1e14, -1e15, 9e17, 1e18, 1.8e19, -1.85e19, 3e38, math.nan, math.inf, -math.inf]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(VALUES), max_size=6), st.integers(0, 5), st.booleans(), st.sampled_from([1, 3, 5000]))
def test_the_plain_way_accepts_whom_the_exact_ways_accept(values: list[float], at: int, apart: bool, d: int) -> None:
    rows = torch.randn(len(values), d, generator=torch.Generator().manual_seed(0))
    for row, value in zip(rows, values, strict=True):
        row[at % d] = value
    given = list(rows) if apart else rows
    plain = checked(stacked(given, d), plain=True)
    assert torch.equal(plain.accepted, checked(stacked(given, d)).accepted)
    assert torch.equal(plain.accepted, checked(stacked(given, d), by_gram=True).accepted)
    assert torch.equal(plain.matrix(), rows[plain.accepted])
