"""Strategies: updates relative to what was sent, whatever arrives, in whatever order."""

from __future__ import annotations

import itertools
import logging
import random
import statistics
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from scapegoat.aggregation import registry as rules
from scapegoat.errors import InputError, RunError
from scapegoat.integrations import flower
from scapegoat.integrations.flower import RobustAggregation
from scapegoat.integrations.flower.replies.records import FlowerLayout
from scapegoat.integrations.flower.replies.unsent import middle
from scapegoat.integrations.flower.strategies.named import rule_name, strategies
from scapegoat.integrations.shared.names import class_name
from scapegoat.integrations.shared.rounds import Reply, stack
from tests.integrations.flower_fakes import FakeGrid, answering, failure, instruction, record, reply

SHAPES = {"layer.weight": (4, 3), "layer.bias": (4,)}
NODES = (11, 5, 2**63 + 7, 42, 17, 23, 8)


def model(seed: int = 0, scale: float = 1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: (scale * rng.normal(size=shape)).astype(np.float32) for name, shape in SHAPES.items()}


def started(strategy: RobustAggregation, arrays: dict[str, np.ndarray]) -> RobustAggregation:
    strategy.configure_train(1, record(arrays), ConfigRecord(), FakeGrid({node: answering(dict) for node in NODES}))
    return strategy


def moved(arrays: dict[str, np.ndarray], seed: int, scale: float = 0.01) -> dict[str, np.ndarray]:
    step = model(1000 + seed, scale)
    return {name: value - step[name] for name, value in arrays.items()}


def values(arrays: ArrayRecord) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in arrays.items()}


def test_every_rule_has_a_strategy_that_flower_users_can_name():
    assert {"AngularTrimmedMean", "ClippedAngularTrimmedMean", "MemoryAngularTrimmedMean"} <= set(strategies)
    data = {"validate": lambda arrays: (0.0, 0.0), "train_on_root": lambda arrays: arrays}
    for name, rule in rules.classes():
        strategy = getattr(flower, class_name(name))(fraction_evaluate=0.5, **data)
        assert strategy.server.rule == rule()
        assert strategy.__doc__


def test_options_of_the_rule_are_keywords_of_its_strategy():
    strategy = flower.AngularTrimmedMean(trim=2, fraction_train=0.5)
    assert strategy.server.rule.trim == 2
    assert strategy.fraction_train == 0.5
    with pytest.raises(TypeError, match="unexpected keyword argument 'trimm'"):
        flower.AngularTrimmedMean(trimm=2)
    with pytest.raises(InputError, match="trim"):
        flower.AngularTrimmedMean(trim=-1)


def test_the_mean_strategy_gives_the_mean_of_the_models():
    arrays = model()
    strategy = started(flower.Mean(), arrays)
    sent = [moved(arrays, i) for i in range(4)]
    new, metrics = strategy.aggregate_train(1, [reply(node, a) for node, a in zip(NODES, sent, strict=False)])
    for name, value in values(new).items():
        np.testing.assert_allclose(value, np.mean([a[name] for a in sent], axis=0), atol=1e-6)
        assert value.dtype == np.float32
    assert metrics["kept-nodes"] == sorted(NODES[:4])
    assert list(new) == list(arrays)


@pytest.mark.parametrize("rule", ["fedavg", "atm", "memory_atm", "median", "trimmed_mean", ["norm_clipping", "atm"]])
def test_reordered_replies_give_bit_identical_arrays(rule):
    arrays = model()
    rule = [{"name": part} for part in rule] if isinstance(rule, list) else rule
    sent = {node: moved(arrays, i) for i, node in enumerate(NODES[:5])}
    outcomes = []
    for order in itertools.islice(itertools.permutations(sent), 0, 120, 7):
        strategy = started(RobustAggregation(rule, seed=1), arrays)
        for server_round in (1, 2):
            new, metrics = strategy.aggregate_train(server_round, [reply(node, sent[node]) for node in order])
        outcomes.append(({name: array.data for name, array in new.items()}, dict(metrics)))
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_the_rule_sees_updates_and_not_weights():
    """Angles between weights are all alike when the model is large; angles between updates tell who turns around."""
    arrays = {name: value + 100 for name, value in model().items()}
    step = model(5, 0.01)
    sent = {n: {k: v - step[k] * (1 + 0.01 * n) for k, v in arrays.items()} for n in range(1, 6)}
    sent[6] = {k: v + step[k] for k, v in arrays.items()}
    strategy = started(flower.AngularTrimmedMean(trim=1), arrays)
    _, metrics = strategy.aggregate_train(1, [reply(node, a) for node, a in sent.items()])
    assert 6 in metrics["dropped-nodes"]


def npy(value: np.ndarray) -> bytes:
    return Array(value).data


def huge(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return record(arrays | {"layer.weight": np.zeros((40_000, 3), np.float32)})


BAD = {
    "nan": (lambda a: record(a | {"layer.bias": np.full(4, np.nan, np.float32)}), "NaN or infinite"),
    "infinite": (lambda a: record(a | {"layer.bias": np.full(4, np.inf, np.float32)}), "NaN or infinite"),
    "unsquarable": (lambda a: record(a | {"layer.bias": np.full(4, 1e30, np.float32)}), "too large to square"),
    "wrong shape": (lambda a: record(a | {"layer.bias": np.zeros(5, np.float32)}), "shape"),
    "transposed": (lambda a: record(a | {"layer.weight": np.zeros((3, 4), np.float32)}), "shape"),
    "wrong type": (lambda a: record(a | {"layer.bias": np.zeros(4, np.int64)}), "type"),
    "double": (lambda a: record(a | {"layer.bias": np.zeros(4, np.float64)}), "type"),
    "partial": (lambda a: record({"layer.bias": a["layer.bias"]}), "missing"),
    "extra": (lambda a: record(a | {"more": np.zeros(3, np.float32)}), "not sent out"),
    "hundredfold": (huge, "bytes where"),
    "not an array": (
        lambda a: ArrayRecord({k: Array("float32", (4,), "numpy.ndarray", b"junk") for k in a}),
        "not an array",
    ),
    "truncated": (
        lambda a: ArrayRecord({k: Array(str(v.dtype), v.shape, "numpy.ndarray", npy(v)[:-3]) for k, v in a.items()}),
        "bytes for an array",
    ),
    "pickled": (
        lambda a: ArrayRecord(
            {k: Array("float32", v.shape, "pickle", npy(v)) for k, v in a.items()},
        ),
        "serialized as 'pickle'",
    ),
    "nothing": (lambda a: ArrayRecord(), "missing"),
}


@pytest.mark.parametrize("kind", sorted(BAD))
def test_malformed_replies_are_set_aside_and_named_and_the_round_goes_on(kind, caplog):
    spoil, reason = BAD[kind]
    arrays = model()
    good = [reply(node, moved(arrays, i)) for i, node in enumerate(NODES[:4])]
    with caplog.at_level(logging.WARNING, logger="flwr"):
        logging.getLogger("flwr").propagate = True
        strategy = started(flower.AngularTrimmedMean(trim=1, seed=0), arrays)
        new, metrics = strategy.aggregate_train(1, [*good[:2], reply(99, spoil(moved(arrays, 9))), *good[2:]])
    alone, _ = started(flower.AngularTrimmedMean(trim=1, seed=0), arrays).aggregate_train(1, good)
    assert {k: a.data for k, a in new.items()} == {k: a.data for k, a in alone.items()}
    assert metrics["set-aside-nodes"] == [99]
    assert reason in strategy.history[0].set_aside[99]
    assert any("node 99" in line and reason in line for line in caplog.messages)


@pytest.mark.parametrize("examples", [float("nan"), float("inf"), -1, [3, 4]])
def test_a_weight_that_is_none_is_malformed(examples):
    arrays = model()
    strategy = started(flower.Mean(), arrays)
    good = [reply(node, moved(arrays, i)) for i, node in enumerate(NODES[:3])]
    _, metrics = strategy.aggregate_train(1, [*good, reply(99, moved(arrays, 9), examples=examples)])
    assert metrics["set-aside-nodes"] == [99]


def test_replies_with_the_wrong_records_are_malformed():
    arrays = model()
    strategy = started(flower.Mean(), arrays)
    good = [reply(node, moved(arrays, i)) for i, node in enumerate(NODES[:3])]
    two = Message(
        RecordDict({"a": record(arrays), "b": record(arrays), "m": MetricRecord({"num-examples": 1})}),
        reply_to=instruction(98, ArrayRecord()),
    )
    none = Message(RecordDict({"a": record(arrays)}), reply_to=instruction(99, ArrayRecord()))
    _, metrics = strategy.aggregate_train(1, [two, *good, none, failure(97, "it broke")])
    assert metrics["set-aside-nodes"] == [98, 99]
    assert metrics["failed-nodes"] == [97]
    assert strategy.history[0].failed == {97: "it broke"}


def test_a_node_that_contradicts_itself_is_set_aside_and_equal_copies_count_once():
    arrays = model()
    good = [reply(node, moved(arrays, i)) for i, node in enumerate(NODES[:3])]
    twice = reply(NODES[0], moved(arrays, 0))
    strategy = started(flower.Mean(), arrays)
    new, metrics = strategy.aggregate_train(1, [*good, twice])
    assert metrics["kept-nodes"] == sorted(NODES[:3])
    contradiction = reply(NODES[0], moved(arrays, 7))
    for order in ([*good, contradiction], [contradiction, *good]):
        strategy = started(flower.Mean(), arrays)
        new, metrics = strategy.aggregate_train(1, order)
        assert metrics["kept-nodes"] == sorted(NODES[1:3])
        assert metrics["set-aside-nodes"] == [NODES[0]]
    assert new is not None


def test_a_round_that_the_rule_cannot_work_with_changes_nothing():
    arrays = model()
    strategy = started(flower.AngularTrimmedMean(trim=2), arrays)
    new, metrics = strategy.aggregate_train(1, [reply(node, moved(arrays, i)) for i, node in enumerate(NODES[:3])])
    assert new is None
    assert metrics["kept-nodes"] == []
    assert "3 replies" in strategy.history[0].skipped
    new, _ = strategy.aggregate_train(2, [])
    assert new is None


def test_buffers_are_merged_over_the_kept_and_never_enter_the_rule():
    arrays = model() | {
        "norm.running_mean": np.zeros(3, np.float32),
        "norm.num_batches_tracked": np.asarray(7),
        "steps": np.asarray([3], np.int32),
    }
    sent = {}
    for i, node in enumerate(NODES[:6]):
        sent[node] = moved({k: arrays[k] for k in SHAPES}, 0 if i < 5 else 1, 0.01) | {
            "norm.running_mean": np.full(3, float(i), np.float32),
            "norm.num_batches_tracked": np.asarray(7 + i),
            "steps": np.asarray([i], np.int32),
        }
    strategy = started(flower.AngularTrimmedMean(trim=1), arrays)
    new, metrics = strategy.aggregate_train(1, [reply(node, a) for node, a in sent.items()])
    kept = [list(sent).index(node) for node in metrics["kept-nodes"]]
    got = values(new)
    np.testing.assert_allclose(got["norm.running_mean"], np.median(kept), rtol=1e-6)
    assert got["norm.num_batches_tracked"] == statistics.median_low(kept) + 7
    assert got["norm.num_batches_tracked"].dtype == np.int64
    assert got["norm.num_batches_tracked"].shape == ()
    assert got["steps"].dtype == np.int32
    assert strategy.server._layout.d == 16
    spoiled = {**sent[NODES[0]], "norm.running_mean": np.full(3, np.nan, np.float32)}
    _, metrics = strategy.aggregate_train(2, [reply(n, spoiled if n == NODES[0] else a) for n, a in sent.items()])
    assert metrics["set-aside-nodes"] == [NODES[0]]


def with_statistics(variance: float, mean: float = 0.0, seen: int = 7) -> dict[str, np.ndarray]:
    return {
        "norm.running_mean": np.full(3, mean, np.float32),
        "norm.running_var": np.full(3, variance, np.float32),
        "norm.num_batches_tracked": np.asarray(seen),
    }


@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [
        (with_statistics(-100.0), "negative values in the buffer 'norm.running_var'"),
        (with_statistics(1.0, seen=-5), "negative values in the buffer 'norm.num_batches_tracked'"),
        (with_statistics(np.inf), "NaN or infinite values in the buffer 'norm.running_var'"),
        (with_statistics(1.0, mean=np.nan), "NaN or infinite values in the buffer 'norm.running_mean'"),
    ],
)
@pytest.mark.parametrize("rule", ["fedavg", "median", "atm"])
def test_statistics_that_cannot_be_are_set_aside_and_named(rule, spoiled, reason, caplog):
    arrays = model() | with_statistics(1.0)
    sent = [moved({k: arrays[k] for k in SHAPES}, i) | with_statistics(1.0 + i) for i in range(4)]
    logging.getLogger("flwr").propagate = True
    strategy = started(RobustAggregation(rule), arrays)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        replies = [reply(node, a) for node, a in zip(NODES, sent, strict=False)]
        new, metrics = strategy.aggregate_train(1, [*replies, reply(99, sent[0] | spoiled)])
    assert metrics["set-aside-nodes"] == [99]
    assert strategy.history[0].set_aside == {99: reason}
    assert any("node 99" in line and reason in line for line in caplog.messages)
    assert 1.0 <= values(new)["norm.running_var"][0] <= 4.0


@pytest.mark.parametrize("rule", ["median", "trimmed_mean", "atm", [{"name": "norm_clipping"}, {"name": "fedavg"}]])
@pytest.mark.parametrize("extreme", [1e30, 0.0])
def test_one_client_does_not_move_the_statistics_of_batchnorm(rule, extreme):
    arrays = model() | with_statistics(1.0)
    # The hostile reply's parameters are the most ordinary ones: no rule has a reason to drop it.
    steps = [*range(9), 4]
    sent = [
        {k: arrays[k] - np.float32(0.001 * step) for k in SHAPES} | with_statistics(1.0 + step / 100) for step in steps
    ]
    sent[-1] |= with_statistics(extreme, mean=extreme)
    strategy = started(RobustAggregation(rule), arrays)
    new, metrics = strategy.aggregate_train(1, [reply(node, a) for node, a in enumerate(sent, 1)])
    assert 10 in metrics["kept-nodes"]
    assert np.all((values(new)["norm.running_var"] >= 1.0) & (values(new)["norm.running_var"] <= 1.09))
    assert np.all(values(new)["norm.running_mean"] == 0.0)


@pytest.mark.parametrize("rule", ["median", "trimmed_mean", "atm", [{"name": "norm_clipping"}, {"name": "fedavg"}]])
@pytest.mark.parametrize("extreme", [2**63 - 1, 15 * 10**17, 0])
def test_one_client_does_not_move_a_count_of_batches(rule, extreme):
    arrays = model() | with_statistics(1.0)
    steps = [*range(9), 4]
    sent = [
        {k: arrays[k] - np.float32(0.001 * step) for k in SHAPES} | with_statistics(1.0, seen=100 + step)
        for step in steps
    ]
    sent[-1] |= with_statistics(1.0, seen=extreme)
    strategy = started(RobustAggregation(rule), arrays)
    new, metrics = strategy.aggregate_train(1, [reply(node, a) for node, a in enumerate(sent, 1)])
    assert 10 in metrics["kept-nodes"]
    assert 100 <= values(new)["norm.num_batches_tracked"] <= 108


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9),
    st.sampled_from(["int64", "uint64", "int8", "uint8", "bool"]),
)
def test_whole_numbers_are_merged_exactly_however_large(numbers, kind):
    limits = (0, 1) if kind == "bool" else (np.iinfo(kind).min, np.iinfo(kind).max)
    numbers = [limits[0] + abs(number) % (limits[1] - limits[0] + 1) for number in numbers]
    layout = FlowerLayout(record({"w": np.zeros(1, np.float32), "n": np.zeros((), kind)}))
    replies = [{"n": np.asarray(number, kind)} for number in numbers]
    assert int(layout.merge_buffers(replies, "median")["n"]) == statistics.median_low(numbers)
    mean = layout.merge_buffers(replies, "mean")["n"]
    assert abs(int(mean) - Fraction(sum(numbers), len(numbers))) <= Fraction(1, 2)
    assert mean.dtype == np.dtype(kind)
    # Where nobody said what was sent out, updates are relative to the same median, whoever's reply came first.
    sent = [reply | {"w": np.full(1, row, np.float32)} for row, reply in enumerate(replies)]
    for order in (sent, sent[::-1]):
        origin = values(middle([Reply(node, record(arrays), 1.0) for node, arrays in enumerate(order)]))
        assert int(origin["n"]) == statistics.median_low(numbers)
        assert origin["n"].dtype == np.dtype(kind)
        assert float(origin["w"][0]) == statistics.median(range(len(numbers)))


def test_plain_averaging_averages_statistics_and_everybody_can_choose():
    arrays = model() | with_statistics(1.0)
    sent = [{k: arrays[k] for k in SHAPES} | with_statistics(v, seen=s) for v, s in ((1.0, 3), (2.0, 4), (6.0, 9))]

    def merged(rule, **keywords):
        new, _ = started(RobustAggregation(rule, **keywords), arrays).aggregate_train(
            1, [reply(node, a) for node, a in enumerate(sent, 1)]
        )
        return values(new)

    assert merged("fedavg")["norm.running_var"][0] == 3.0
    assert merged("fedavg", buffer_merge="median")["norm.running_var"][0] == 2.0
    assert merged("median")["norm.running_var"][0] == 2.0
    assert merged("median", buffer_merge="mean")["norm.running_var"][0] == 3.0
    assert merged("median")["norm.num_batches_tracked"] == 4
    assert merged("fedavg")["norm.num_batches_tracked"] == 5


def test_strategies_are_known_by_the_rule_they_stand_for():
    for name, _ in rules.classes():
        assert rule_name(class_name(name)) == name
    assert [rule_name(name) for name in ("FedAvg", "FedMedian", "FedTrimmedAvg")] == [
        "fedavg",
        "median",
        "trimmed_mean",
    ]
    assert rule_name("FedAdam") == "FedAdam"


def test_double_precision_models_keep_their_precision():
    arrays = {"w": np.linspace(1, 2, 7)}
    step = np.full(7, 1e-9)
    strategy = started(flower.Mean(), arrays)
    new, _ = strategy.aggregate_train(1, [reply(node, {"w": arrays["w"] - step}) for node in NODES[:3]])
    assert new["w"].numpy().dtype == np.float64
    np.testing.assert_allclose(arrays["w"] - new["w"].numpy(), step, rtol=1e-5)


def test_updates_may_be_sent_as_they_are_with_an_optimizer_on_the_server():
    arrays = model()
    gradient = model(3)
    strategy = started(flower.Mean(replies="updates", server_optimizer="adam", server_lr=0.01), arrays)
    new, _ = strategy.aggregate_train(1, [reply(node, gradient) for node in NODES[:3]])
    for name, value in values(new).items():
        np.testing.assert_allclose(arrays[name] - value, 0.01 * np.sign(gradient[name]), rtol=1e-3)


def test_metrics_are_averaged_over_the_kept_and_odd_ones_left_out():
    arrays = model()
    strategy = started(flower.Mean(), arrays)
    sent = [moved(arrays, i) for i in range(4)]
    metrics = [{"loss": 1.0}, {"loss": 3.0}, {"loss": float("nan")}, {"other": [1.0, 2.0]}]
    replies = [
        reply(n, a, metrics=m, examples=e) for n, a, m, e in zip(NODES, sent, metrics, (10, 30, 5, 5), strict=False)
    ]
    _, averaged = strategy.aggregate_train(1, replies)
    assert averaged["loss"] == pytest.approx(2.5)
    assert len(averaged["kept-nodes"]) == 4


def test_evaluation_survives_replies_that_cannot_be_read():
    strategy = RobustAggregation("fedavg")
    good = [reply(node, ArrayRecord(), metrics={"acc": 0.5}) for node in NODES[:2]]
    bad = reply(99, ArrayRecord(), examples=float("nan"))
    assert strategy.aggregate_evaluate(1, [bad, *good, failure(7, "gone")])["acc"] == pytest.approx(0.5)
    assert strategy.aggregate_evaluate(1, [failure(7, "gone")]) is None


@pytest.mark.parametrize("name", ["MemoryAngularTrimmedMean", "ReputationAngularTrimmedMean"])
def test_a_sketched_memory_holds_nodes_of_any_id_under_a_seed_that_nobody_chose(name):
    shapes = {"layer.weight": (20, 20)}
    arrays = {key: np.zeros(shape, dtype=np.float32) for key, shape in shapes.items()}
    seeds = set()
    for _ in range(2):
        strategy = started(getattr(flower, name)(sketch=16, remember=5), arrays)
        for round_ in range(1, 4):
            rng = np.random.default_rng(round_)
            sent = [{key: rng.normal(size=shape).astype(np.float32) for key, shape in shapes.items()} for _ in NODES]
            new, metrics = strategy.aggregate_train(round_, [reply(n, a) for n, a in zip(NODES, sent, strict=True)])
            assert new is not None
            assert len(metrics["kept-nodes"]) == len(NODES) - 2
        state = strategy.server.state
        assert state["direction/0"].shape[1] == 16
        assert int((state["seen/0"] >= 0).sum()) == 5
        seeds.add(int(state["sketch"][0]))
    assert len(seeds) == 2


@pytest.mark.parametrize("name", ["MemoryAngularTrimmedMean", "ReputationAngularTrimmedMean", "FoolsGold"])
def test_a_strategy_that_takes_over_a_sketched_memory_decides_as_the_one_before(name):
    """Its own seed, which nobody chose, is another one: that of the sketch comes with the memory."""
    arrays = {"layer.weight": np.zeros((20, 20), dtype=np.float32)}

    def rounds(strategy, first, last):
        for round_ in range(first, last):
            rng = np.random.default_rng(round_)
            sent = [{key: rng.normal(size=a.shape).astype(np.float32) for key, a in arrays.items()} for _ in NODES]
            new, metrics = strategy.aggregate_train(round_, [reply(n, a) for n, a in zip(NODES, sent, strict=True)])
        return values(new)["layer.weight"], metrics["kept-nodes"]

    before, after = (started(getattr(flower, name)(sketch=16, seed=seed), arrays) for seed in (1, 2))
    rounds(before, 1, 3)
    after.server.state.update({key: value.clone() for key, value in before.server.state.items()})
    straight, kept = rounds(before, 3, 6)
    again, kept_again = rounds(after, 3, 6)
    assert kept == kept_again
    np.testing.assert_array_equal(straight, again)
    assert before.server.state.keys() == after.server.state.keys()
    assert all(torch.equal(before.server.state[key], after.server.state[key]) for key in before.server.state)


def test_rows_and_memory_go_by_client_id_where_there_is_one():
    arrays = model()
    clients = {node: i for i, node in enumerate(NODES[:4])}
    strategy = started(flower.MemoryAngularTrimmedMean(trim=1, clients=clients), arrays)
    strategy.aggregate_train(1, [reply(node, moved(arrays, i)) for i, node in enumerate(NODES[:4])])
    assert strategy.history[0].nodes == NODES[:4]
    assert {key.split("/")[1] for key in strategy.server.state} == {"0", "1", "2", "3"}


def test_the_choice_of_nodes_is_repeatable_and_a_sampler_has_the_last_word():
    grid = FakeGrid({node: answering(dict) for node in NODES})

    def chosen(strategy: RobustAggregation, server_round: int) -> list[int]:
        messages = strategy.configure_train(server_round, record(model()), ConfigRecord(), grid)
        return [message.metadata.dst_node_id for message in messages]

    one, other = (RobustAggregation("fedavg", fraction_train=0.5, seed=3) for _ in range(2))
    assert [chosen(one, r) for r in range(1, 5)] == [chosen(other, r) for r in range(1, 5)]
    assert len({tuple(chosen(one, r)) for r in range(1, 9)}) > 1
    clients = {node: i for i, node in enumerate(NODES)}
    picky = RobustAggregation("fedavg", clients=clients, sampler=lambda server_round, ids: [5, 1])
    assert chosen(picky, 1) == [NODES[5], NODES[1]]


def test_rules_with_data_of_the_server_try_candidates_on_it():
    arrays = model()
    seen = []

    def validate(candidate: ArrayRecord) -> tuple[float, float]:
        seen.append(values(candidate))
        return 0.5, 0.25

    strategy = started(RobustAggregation("fedavg", validate=validate, train_on_root=lambda a: a), arrays)
    strategy.aggregate_train(1, [reply(node, moved(arrays, i)) for i, node in enumerate(NODES[:3])])
    context = strategy.server._context(strategy.server._layout, stack([], strategy.server._layout, "arrays", {}), 1)
    score = context.score(torch.ones(16))
    assert (score.loss, score.error_rate) == (0.5, 0.25)
    np.testing.assert_allclose(seen[-1]["layer.bias"], arrays["layer.bias"] - 1, rtol=1e-6)
    assert torch.equal(context.root_update(), torch.zeros(16))


@pytest.mark.parametrize("rule", ["fang", "fltrust", [{"name": "norm_clipping"}, {"name": "fltrust"}]])
def test_rules_that_need_data_of_the_server_say_so_at_once(rule):
    with pytest.raises(InputError, match="data of the server's own"):
        RobustAggregation(rule)


def test_fltrust_weighs_by_the_servers_own_update():
    arrays = model()
    root = moved(arrays, 0)
    strategy = started(flower.FLTrust(train_on_root=lambda given: record(root)), arrays)
    turned = {name: 2 * arrays[name] - value for name, value in root.items()}
    new, metrics = strategy.aggregate_train(1, [reply(1, root), reply(2, turned), reply(3, moved(arrays, 0))])
    assert metrics["kept-nodes"] == [1, 3]
    for name, value in values(new).items():
        np.testing.assert_allclose(value, root[name], atol=1e-6)


def test_aggregating_before_anything_was_sent_says_so():
    with pytest.raises(InputError, match="configure_train"):
        RobustAggregation("fedavg").aggregate_train(1, [])


@pytest.mark.parametrize(
    "keywords",
    [{"rule": "amt"}, {"replies": "weights"}, {"server_optimizer": "lbfgs"}, {"server_lr": -1}, {"round_timeout": 0}],
)
def test_wrong_options_are_refused_in_one_line(keywords):
    with pytest.raises(InputError) as caught:
        RobustAggregation(**{"rule": "fedavg", **keywords})
    assert "\n" not in str(caught.value)


def poisson(rates):
    pytest.importorskip("dp_accounting")
    from tests.reference import accounting

    exact = accounting.poisson(rates, 4.0)
    return 0.99 * exact, 1.01 * exact


def fixed(rates):
    pytest.importorskip("dp_accounting")
    from tests.reference import accounting

    return accounting.fixed_bounds(rates, 4.0)


@pytest.mark.parametrize(
    ("keywords", "rate", "bounds"),
    [
        ({"fraction_train": 0.1, "min_train_nodes": 5}, 0.5, fixed),
        ({"fraction_train": 0.1, "sampler": lambda r, ids: random.Random(r).sample(ids, 3)}, 0.3, fixed),
        ({"fraction_train": 0.1, "sampler": flower.PoissonSampler(0.4, seed=0)}, 0.4, poisson),
    ],
    ids=["Flower's options", "a sampler of a user's own", "Poisson sampling"],
)
def test_the_epsilon_is_that_of_the_rate_at_which_clients_were_really_picked(keywords, rate, bounds):
    nodes = range(1, 11)
    strategy = flower.DifferentialPrivacy(clip=1.0, noise_multiplier=4.0, fraction_evaluate=0.0, **keywords)
    grid = FakeGrid({node: answering(lambda a: {k: v + 1 for k, v in a.items()}) for node in nodes})
    result = strategy.start(grid, record(model()), num_rounds=4)
    for done in range(1, 5):
        told = result.train_metrics_clientapp[done]["rule-epsilon"]
        least, most = bounds([rate] * done)
        assert least <= told <= most


def test_rounds_that_picked_different_shares_add_up():
    nodes = range(1, 11)
    sampler = lambda r, ids: random.Random(r).sample(ids, 2 * r)  # noqa: E731
    strategy = flower.DifferentialPrivacy(clip=1.0, noise_multiplier=4.0, fraction_evaluate=0.0, sampler=sampler)
    grid = FakeGrid({node: answering(lambda a: {k: v + 1 for k, v in a.items()}) for node in nodes})
    result = strategy.start(grid, record(model()), num_rounds=4)
    told = result.train_metrics_clientapp[4]["rule-epsilon"]
    least, most = fixed([0.2, 0.4, 0.6, 0.8])
    assert least <= told <= most


def test_a_poisson_round_without_anybody_changes_nothing_and_counts():
    strategy = flower.DifferentialPrivacy(
        clip=1.0, noise_multiplier=4.0, fraction_evaluate=0.0, sampler=flower.PoissonSampler(0.1, seed=0)
    )
    grid = FakeGrid({node: answering(lambda a: {k: v + 1 for k, v in a.items()}) for node in (1, 2, 3)})
    strategy.start(grid, record(model()), num_rounds=12)
    asked = [report.skipped is None for report in strategy.history]
    assert 0 < sum(asked) < 12
    last = max(r for r, used in enumerate(asked) if used)
    least, most = poisson([0.1] * (last + 1))
    assert least <= strategy.history[last].notes["epsilon"] <= most


@pytest.mark.parametrize("rate", [0, 1.5, -1, float("nan")])
def test_a_rate_that_is_no_probability_is_refused(rate):
    with pytest.raises(InputError, match="rate"):
        flower.PoissonSampler(rate)


def test_too_few_nodes_for_the_rule_end_the_run_with_what_is_needed():
    grid = FakeGrid({node: answering(dict) for node in (1, 2)})
    strategy = flower.AngularTrimmedMean(trim=1, node_timeout=0.01)
    with pytest.raises(RunError, match=r"2 nodes are connected .* where 3 are needed: atm cannot work with fewer"):
        strategy.start(grid, record(model()), num_rounds=3)
    strategy = flower.Mean(min_available_nodes=5, node_timeout=0.01)
    with pytest.raises(RunError, match=r"where 5 are needed: min_available_nodes"):
        strategy.start(grid, record(model()), num_rounds=3)


class FlappingGrid(FakeGrid):
    """A grid of two nodes, one of which leaves and comes back all the time; it gives up after `most` looks."""

    def __init__(self, most: int) -> None:
        super().__init__({node: answering(dict) for node in (1, 2)})
        self.looks, self.most = 0, most

    def get_node_ids(self) -> list[int]:
        self.looks += 1
        assert self.looks < self.most, "still waiting"
        return [1, 2] if self.looks % 2 else [1]


def test_a_node_that_leaves_and_comes_back_is_no_further_node():
    strategy = flower.AngularTrimmedMean(trim=1, node_timeout=0.02)
    with pytest.raises(RunError, match=r"no more came within 0\.02 s, where 3 are needed"):
        strategy.start(FlappingGrid(most=50), record(model()), num_rounds=1)


def test_a_rule_asks_as_many_nodes_as_it_needs():
    grid = FakeGrid({node: answering(dict) for node in range(1, 11)})
    strategy = flower.AngularTrimmedMean(trim=2, fraction_train=0.1, fraction_evaluate=0.0)
    strategy.start(grid, record(model()), num_rounds=1)
    assert len(strategy.history[0].nodes) == 5


def test_a_run_in_which_no_round_changed_the_model_ends_with_an_error():
    grid = FakeGrid({node: answering(lambda a: {k: v * np.nan for k, v in a.items()}) for node in range(1, 4)})
    strategy = flower.CoordinateMedian(fraction_evaluate=0.0)
    with pytest.raises(RunError, match="no round of 2 changed the model; the last one: no reply could be used"):
        strategy.start(grid, record(model()), num_rounds=2)
