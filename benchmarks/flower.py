"""From the replies of a round to the next arrays: our strategies beside Flower's own, on the same replies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.timing import interleaved, log
from scapegoat.integrations.flower import require_flower

REPLIES = 50
# A multilayer perceptron with 3.2M parameters, as for Texas100 (6,170 inputs).
SHAPES = {
    "0.weight": (512, 6170),
    "0.bias": (512,),
    "2.weight": (128, 512),
    "2.bias": (128,),
    "4.weight": (100, 128),
    "4.bias": (100,),
}
MALICIOUS = 5


def run(quick: bool = False) -> dict[str, Any]:
    """Seconds of Flower's strategy and of ours for each rule that Flower has, and how many times faster ours is."""
    require_flower()
    from flwr.serverapp import strategy as theirs

    half = REPLIES // 2
    rules: dict[str, tuple[Any, Callable[[], Any]]] = {
        "fedavg": ("fedavg", theirs.FedAvg),
        "median": ("median", theirs.FedMedian),
        "trimmed_mean": ({"name": "trimmed_mean", "trim": 10}, lambda: theirs.FedTrimmedAvg(beta=0.2)),
        "multi_krum": (
            {"name": "multi_krum", "malicious": MALICIOUS, "select": half},
            lambda: theirs.MultiKrum(num_malicious_nodes=MALICIOUS, num_nodes_to_select=half),
        ),
        "bulyan": (
            {"name": "bulyan", "malicious": MALICIOUS},
            lambda: theirs.Bulyan(num_malicious_nodes=MALICIOUS),
        ),
    }
    flwr_log = logging.getLogger("flwr")
    level = flwr_log.level
    flwr_log.setLevel(logging.ERROR)
    try:
        sent, received = _models()
        figures = {}
        for name, (rule, flower) in rules.items():
            log.info("%s, Flower's and ours", name)
            seconds = interleaved(
                {
                    "flower": partial(_aggregate, flower, received),
                    "scapegoat": partial(_aggregate, partial(_strategy, rule, sent), received),
                },
                repeats=1 if quick else 3,
                warmup=0 if quick else 1,
            )
            figures[name] = {**seconds, "times_faster": seconds["flower"] / seconds["scapegoat"]}
        return {
            "replies": REPLIES,
            "parameters": sum(int(np.prod(shape)) for shape in SHAPES.values()),
            "threads": torch.get_num_threads(),
            "rules": figures,
        }
    finally:
        flwr_log.setLevel(level)


def _strategy(rule: Any, sent: Any) -> Any:
    from scapegoat.integrations.flower.strategies.strategy import RobustAggregation

    strategy = RobustAggregation(rule)
    strategy.server.send_record(sent)
    return strategy


def _aggregate(make: Callable[[], Any], received: list[Any]) -> None:
    arrays, _ = make().aggregate_train(1, _replies(received))
    assert arrays is not None


def _models() -> tuple[Any, list[Any]]:
    """The global arrays, and what each node has after training: serialized once, as they come over the network."""
    from flwr.app import Array, ArrayRecord

    rng = np.random.default_rng(0)
    start = {name: 0.05 * rng.standard_normal(shape, dtype=np.float32) for name, shape in SHAPES.items()}
    received = []
    for _ in range(REPLIES):
        step = {
            name: value - 0.001 * rng.standard_normal(value.shape, dtype=np.float32) for name, value in start.items()
        }
        received.append({name: Array(value) for name, value in step.items()})
    return ArrayRecord({name: Array(value) for name, value in start.items()}), received


def _replies(received: list[Any]) -> list[Any]:
    """Fresh messages around the same bytes: some of Flower's strategies empty the records that they read."""
    from flwr.app import ArrayRecord, Metadata, MetricRecord, RecordDict
    from flwr.app.message import make_message

    replies = []
    for node, arrays in enumerate(received, start=1):
        metadata = Metadata(
            run_id=1,
            message_id=str(node),
            src_node_id=node,
            dst_node_id=0,
            reply_to_message_id=str(node),
            group_id="1",
            created_at=0.0,
            ttl=3600.0,
            message_type="train",
        )
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 10})})
        replies.append(make_message(metadata=metadata, content=content))
    return replies
