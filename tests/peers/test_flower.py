"""Flower's own tests of its strategies, with ours in their places, and both side by side on random replies.

The inputs and expectations are those of flwr's `fedmedian_test`, `fedtrimmedavg_test`, `krum_test`, `multikrum_test`
and `strategy_utils_test` (Apache-2.0), written as numbers. They call `aggregate_train` without `configure_train`.
Where ours is another definition on purpose, the test says how it differs, and docs/peers.md why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import ArrayRecord
from flwr.serverapp import strategy as theirs

from scapegoat.aggregation import get, registry
from scapegoat.errors import InputError
from scapegoat.integrations import flower
from tests.aggregation.inputs import context, make
from tests.integrations.flower_fakes import reply

PAGE = Path(__file__).parents[2] / "docs" / "peers.md"


def replies(arrays: Any, examples: list[int] | None = None) -> list[Any]:
    counts = examples or [5] * len(arrays)
    return [
        reply(node + 1, ArrayRecord([np.asarray(array)]), examples=count)
        for node, (array, count) in enumerate(zip(arrays, counts, strict=True))
    ]


def aggregated(strategy: Any, arrays: Any, examples: list[int] | None = None) -> np.ndarray:
    record, _ = strategy.aggregate_train(1, replies(arrays, examples))
    assert record is not None
    (found,) = record.to_numpy_ndarrays()
    return found


def test_fedmedian() -> None:
    arrays = [[1.0, 0.2, 0.5, 1.0], [0.2, 0.5, 1.0, 0.2], [0.5, 1.0, 0.2, 0.5]]
    np.testing.assert_equal(aggregated(flower.CoordinateMedian(), arrays, [5, 2, 9]), [0.5] * 4)


def test_fedtrimmedavg() -> None:
    arrays = [[0.5] * 4, [1.0, 0.2, 0.5, 1.0], [0.2, 0.5, 1.0, 0.2], [0.5, 1.0, 0.2, 0.5]]
    np.testing.assert_equal(aggregated(flower.TrimmedMean(trim=0.25), arrays, [1, 5, 2, 9]), [0.5] * 4)


def test_fedtrimmedavg_keeps_arrays_without_dimensions() -> None:
    found = aggregated(flower.TrimmedMean(trim=0.25), [0.5, 1.0, 2.0, 100.0])
    assert found.shape == ()
    assert found == 1.5


def test_krum_of_three_is_refused_as_a_strategy_and_the_same_as_a_function() -> None:
    """n - f - 2 neighbours are none of n = 3, f = 1: Flower counts one, ours asks for a fourth reply."""
    arrays = np.array([[0.2] * 4, [0.7] * 4, [1.0] * 4])
    record, _ = flower.Krum(malicious=1).aggregate_train(1, replies(arrays))
    assert record is None
    np.testing.assert_allclose(get("krum", malicious=1)(arrays).update, arrays[1])
    arrays[1] = 0.5
    np.testing.assert_allclose(get("multi_krum", malicious=1, select=2)(arrays).update, [0.35] * 4, rtol=1e-6)
    assert "| `Krum`, `MultiKrum` of three |" in PAGE.read_text()


def test_multi_krum_leaves_out_the_wider_updates_though_the_models_dwarf_them() -> None:
    """flwr's `test_select_multikrum_with_large_shared_component`, newer than flwr 1.41."""
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 10, size=1000)
    spreads = [1e-4] * 7 + [3e-4] * 3
    arrays = [(weights + rng.normal(0, spread, size=1000)).astype(np.float32) for spread in spreads]
    _, metrics = flower.MultiKrum(malicious=3, select=5).aggregate_train(1, replies(arrays))
    assert set(metrics["kept-nodes"]) <= set(range(1, 8))


def test_the_weighted_mean() -> None:
    """strategy_utils_test: arrays weighted by num-examples."""
    arrays, examples = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [1, 2, 5]
    expected = np.average(np.array(arrays), axis=0, weights=examples)
    np.testing.assert_allclose(aggregated(flower.Mean(weighted=True), arrays, examples), expected, rtol=1e-7)


PAIRS = [
    (lambda: theirs.FedAvg(), lambda: flower.Mean(weighted=True), 2),
    (lambda: theirs.FedMedian(), lambda: flower.CoordinateMedian(), 2),
    (lambda: theirs.FedTrimmedAvg(beta=0.2), lambda: flower.TrimmedMean(trim=0.2), 5),
    (lambda: theirs.Krum(num_malicious_nodes=1), lambda: flower.Krum(malicious=1), 5),
    (
        lambda: theirs.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=3),
        lambda: flower.MultiKrum(malicious=1, select=3),
        5,
    ),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pair", PAIRS, ids=["FedAvg", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), fives=st.integers(1, 4))
def test_side_by_side(pair: Any, dtype: str, seed: int, fives: int) -> None:
    """Numbers of nodes of which a fifth is whole: rounding is another test's. All in float32 of a node's change."""
    flowers, ours, least = pair
    n = max(least, 5 * fives)
    arrays = [row.numpy().astype(dtype) for row in make(seed, n, 40, kind="normal")]
    expected = aggregated(flowers(), arrays)
    found = aggregated(ours(), arrays)
    assert found.dtype == expected.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("n", "flowers", "ours"), [(5, 1, 1), (7, 1, 2), (9, 1, 2), (10, 2, 2), (11, 2, 3), (14, 2, 3)]
)
def test_a_fifth_is_rounded_up_where_flower_rounds_it_down(n: int, flowers: int, ours: int) -> None:
    values = [[float(v**3)] for v in range(n)]
    np.testing.assert_allclose(
        aggregated(theirs.FedTrimmedAvg(beta=0.2), values), np.mean(values[flowers : n - flowers], axis=0)
    )
    np.testing.assert_allclose(
        aggregated(flower.TrimmedMean(trim=0.2), values), np.mean(values[ours : n - ours], axis=0), rtol=1e-6
    )
    assert "| `FedTrimmedAvg(beta=...)` |" in PAGE.read_text()


def test_bulyan_picks_one_by_one_where_flower_scores_once() -> None:
    """Both guard against f of n = 4f + 3; which n - 2f are looked at differs, so the figures do, a little."""
    arrays = [row.numpy() for row in make(3, 11, 40)]
    flowers = aggregated(theirs.Bulyan(num_malicious_nodes=2), arrays)
    ours = aggregated(flower.Bulyan(malicious=2), arrays)
    assert 0 < np.linalg.norm(flowers - ours) < 0.5 * np.linalg.norm(np.std(arrays, axis=0))
    assert "| `Bulyan` |" in PAGE.read_text()


def test_replies_of_one_node_count_once() -> None:
    """Flower's tests answer in one node's name; a node that says two things is set aside here."""
    both = [reply(1, ArrayRecord([np.ones(3)])), reply(1, ArrayRecord([np.zeros(3)]))]
    record, metrics = flower.Mean().aggregate_train(1, both)
    assert record is None
    assert metrics["set-aside-nodes"] == [1]
    assert "| two replies of one node |" in PAGE.read_text()


SHIFT_FREE = [name for name, rule in registry.classes() if rule.shift_free]


@pytest.mark.parametrize("name", SHIFT_FREE)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_rules_that_say_so_do_not_care_what_updates_are_relative_to(name: str, seed: int) -> None:
    updates, origin = make(seed, 11, 150), make(seed + 1, 1, 150)[0]
    here, there = get(name)(updates, context(11, 150)), get(name)(updates + origin, context(11, 150))
    assert here.kept.equal(there.kept)
    np.testing.assert_allclose(there.update - origin, here.update, atol=2e-6)


@pytest.mark.parametrize("name", ["AngularTrimmedMean", "NormClipping", "DifferentialPrivacy", "FoolsGold"])
def test_rules_that_do_care_must_be_told(name: str) -> None:
    with pytest.raises(InputError, match="call configure_train before aggregate_train"):
        getattr(flower, name)().aggregate_train(1, replies([[1.0, 2.0]] * 5))


@pytest.mark.parametrize(
    "keywords", [{"server_optimizer": "adam"}, {"server_lr": 0.5}, {"weight_decay": 0.1}, {"replies": "updates"}]
)
def test_so_must_servers_that_take_other_steps(keywords: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="call configure_train before aggregate_train"):
        flower.CoordinateMedian(**keywords).aggregate_train(1, replies([[1.0, 2.0]] * 5))


def test_nobody_far_away_becomes_the_origin() -> None:
    """Two of seven are so far out that float32 would lose the others beside them."""
    arrays = [row.numpy() for row in make(0, 7, 30)]
    arrays[0] = np.full(30, 1e18, dtype=np.float32)
    arrays[1] = np.full(30, np.nan, dtype=np.float32)
    found = aggregated(flower.CoordinateMedian(), arrays)
    np.testing.assert_allclose(found, np.median(np.delete(arrays, 1, axis=0), axis=0), rtol=1e-6, atol=1e-7)
