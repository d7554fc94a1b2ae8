"""meamed and dnc do what their papers say, on random and on hostile updates."""

from __future__ import annotations

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from scapegoat import aggregation
from tests.aggregation.inputs import as_rows, make, outnumbered, stacks
from tests.aggregation.test_rules_match_reference import agree, clear_cut
from tests.reference import aggregation as reference

many = settings(max_examples=40, deadline=None)


@many
@given(stacks(kinds=("normal", "shared")), st.data())
def test_meamed_is_the_mean_of_the_values_around_the_median(updates: Tensor, data: st.DataObject) -> None:
    f = data.draw(st.integers(0, (len(updates) - 1) // 2))
    answer = aggregation.meamed(updates, f)
    agree(answer, reference.meamed(as_rows(updates), f), updates)
    assert answer.notes == {"malicious": f}


@many
@given(outnumbered())
def test_no_minority_takes_meamed_out_of_the_honest_range_by_more_than_its_width(case: tuple[Tensor, int]) -> None:
    """The median is among the n - f honest values, which all lie within their range of it: nothing farther counts."""
    updates, m = case
    honest = updates[: len(updates) - m]
    low, high = honest.min(0).values, honest.max(0).values
    margin = (high - low) + 1e-5 * honest.abs().max()
    answer = aggregation.meamed(updates, m).update
    assert bool(((answer >= low - margin) & (answer <= high + margin)).all())


@many
@given(
    stacks(min_rows=3, kinds=("normal", "shared")),
    st.data(),
    st.sampled_from([1, 5, 1000]),
    st.integers(1, 3),
    st.sampled_from([0.5, 1.0, 1.5]),
)
def test_dnc_leaves_out_what_stands_out(
    updates: Tensor, data: st.DataObject, coordinates: int, iterations: int, filtering: float
) -> None:
    n, d = updates.shape
    f = data.draw(st.integers(1, (n - 1) // 2))
    seed = data.draw(st.integers(0, 2**31))
    draw = torch.Generator().manual_seed(seed)
    draws = [torch.randperm(d, generator=draw)[:coordinates].tolist() for _ in range(iterations)]
    drop = min(int(-(-filtering * f // 1)), (n - 1) // 2)
    rows = as_rows(updates)
    for chosen in draws:
        scores = reference.dnc_scores(rows, chosen)
        assume(clear_cut(scores, n - drop, 1e-6 * max(scores)))
    source = torch.Generator().manual_seed(seed)
    answer = aggregation.dnc(updates, f, filtering, coordinates, iterations, source)
    agree(answer, reference.dnc(rows, drop, draws), updates)


def test_dnc_leaves_out_a_minority_that_pulls_together() -> None:
    for f in (1, 3, 6):
        updates = make(f, 20, 500)
        updates[:f] = updates[f:].mean(0) + 0.5 * make(9, 1, 500)[0] * 4
        answer = aggregation.dnc(updates, f, iterations=3, coordinates=200, generator=torch.Generator().manual_seed(0))
        assert not answer.kept[:f].any()


def test_dnc_keeps_somebody_where_every_iteration_leaves_out_others() -> None:
    updates = make(0, 5, 2000)
    answer = aggregation.dnc(updates, 2, coordinates=3, iterations=200, generator=torch.Generator().manual_seed(0))
    assert answer.kept.any()
    assert answer.notes["left_out"] == 5 - int(answer.kept.sum())
