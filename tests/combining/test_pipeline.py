"""Rules compose: transforms in order, then a rule."""

from __future__ import annotations

import math

import pytest
import torch

from scapegoat import aggregation
from scapegoat.aggregation import Pipeline, get, parse
from scapegoat.errors import OptionError
from tests.aggregation.inputs import context, make


def test_clipping_then_atm_is_clipped_atm() -> None:
    updates = make(1, 9, 300, kind="shared", spread=20.0)
    piped = parse([{"name": "norm_clipping"}, {"name": "atm", "trim": 2}])(updates)
    direct = aggregation.clipped_atm(updates, 2)
    assert torch.allclose(piped.update, direct.update, atol=1e-6)
    assert torch.equal(piped.kept, direct.kept)
    assert piped.notes["clip"] == pytest.approx(direct.notes["clip"])


def test_the_order_of_transforms_matters() -> None:
    updates = make(1, 5, 300, spread=20.0)
    one = parse([{"name": "norm_clipping", "norm": 0.1}, {"name": "top_k", "fraction": 0.1}])(updates)
    two = parse([{"name": "top_k", "fraction": 0.1}, {"name": "norm_clipping", "norm": 0.1}])(updates)
    assert not torch.allclose(one.update, two.update)
    sparse = [row * (row.abs() >= row.abs().sort().values[-30]) for row in updates]
    expected = torch.stack([row * min(1.0, 0.1 / float(row.norm())) for row in sparse]).mean(0)
    assert torch.allclose(two.update, expected, atol=1e-7)


def test_a_transform_alone_ends_in_the_mean() -> None:
    updates = make(1, 5, 300, spread=20.0)
    piped = parse([{"name": "norm_clipping"}, {"name": "fedavg"}])(updates)
    assert torch.allclose(get("norm_clipping")(updates).update, piped.update, atol=1e-7)


def test_a_rule_with_memory_keeps_it_inside_a_pipeline() -> None:
    where = context(5, 150)
    rule = parse([{"name": "top_k"}, {"name": "memory_atm"}])
    rule(make(1, 5, 150), where)
    rule(make(2, 5, 150), where)
    assert int(where.state["count/3"]) == 2


def test_weighted_means_see_the_counts_of_the_rows_left() -> None:
    updates = make(1, 3, 150)
    updates[0] = math.nan
    where = aggregation.AggregationContext((7, 8, 9), (1000, 1, 3))
    plain = get("fedavg", weighted=True)(updates, where)
    piped = parse([{"name": "norm_clipping", "norm": 1e9}, {"name": "fedavg", "weighted": True}])(updates, where)
    expected = updates[1] * 0.25 + updates[2] * 0.75
    assert torch.allclose(plain.update, expected, atol=1e-6)
    assert torch.allclose(piped.update, expected, atol=1e-6)


def test_the_spec_writes_a_list_and_reads_it_back() -> None:
    stages = [{"name": "norm_clipping", "norm": None}, {"name": "atm", "trim": 2}]
    rule = parse(stages)
    assert isinstance(rule, Pipeline)
    assert rule.canonical() == stages
    assert parse(rule.canonical()) == rule
    assert parse(rule) is rule
    assert parse([{"name": "atm"}]).canonical() == {"name": "atm", "trim": 1}
    assert parse("atm") == get("atm")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "a pipeline needs at least one rule"),
        ([{"name": "atm"}, {"name": "median"}], "0: atm ends a pipeline, but others follow"),
        ([{"name": "norm_clipping"}, {"name": "atn"}], "1.name: 'atn' is not a defense, did you mean 'atm'?"),
        ([{"name": "norm_clipping", "norm": -1}, "atm"], "0.norm: -1 is not allowed"),
        ([3, "atm"], "0: 3 is not a defense"),
        ([{"name": "norm_clipping"}, {"name": "atm", "trims": 1}], "1.trims: is not a known key, did you mean 'trim'?"),
    ],
)
def test_what_does_not_compose_is_one_line_with_its_place(value: object, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("stages", "updates", "says"),
    [
        (["norm_clipping", {"name": "atm", "trim": 4}], 8, "1.trim: 4 is too many for 8 updates"),
        ([{"name": "top_k"}, "median"], 1, "1: median compares updates"),
        (["norm_clipping", "fedavg"], 1, "0: norm_clipping compares updates"),
    ],
)
def test_a_stage_that_does_not_fit_is_named_by_its_place(stages: list[object], updates: int, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(stages).check(updates)
    assert str(caught.value).startswith(says)
