"""A Flower strategy for any aggregation rule: drop-in where `FedAvg` stood."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from scapegoat.aggregation import RuleLike
from scapegoat.errors import InputError
from scapegoat.integrations.flower.replies.records import BUFFER_NAMES, BufferMerge, ReplyKind
from scapegoat.integrations.flower.replies.rounds import announce, read_reply, read_weight
from scapegoat.integrations.flower.replies.timeouts import PatientGrid
from scapegoat.integrations.flower.strategies.robust_server import (
    ProbeOutputs,
    RobustServer,
    TrainOnRoot,
    Validate,
)
from scapegoat.integrations.flower.strategies.waiting import checked_timeout, wait_for_nodes, why_so_many
from scapegoat.integrations.shared.faults import MalformedReplyError, fault, plain
from scapegoat.integrations.shared.rounds import Reply, RoundReport, require_progress
from scapegoat.optimizers import OptimizerOptions
from scapegoat.randomness import numpy_generator

log = logging.getLogger("flwr")

# Which clients take part: (round from 1, ids of the connected clients in order) -> ids of the chosen ones.
Sampler = Callable[[int, list[int]], Sequence[int]]


class RobustAggregation(FedAvg):  # type: ignore[misc]
    """`FedAvg` with another rule in place of the mean.

    Parameters
    ----------
    rule : str, mapping, list or Rule
        A rule's name (`"atm"`), a name with options (`{"name": "atm", "trim": 2}`), a pipeline
        (`[{"name": "norm_clipping"}, {"name": "median"}]`), or a `scapegoat.aggregation.Rule`.
    replies : "arrays" or "updates" (default: "arrays")
        What clients send: the arrays after training, as Flower apps do, or the descent direction itself (a gradient).
    buffers : sequence of str
        Shell patterns of array names that are statistics, not parameters. The default knows PyTorch's BatchNorm;
        integer arrays are buffers always. Buffers never enter the rule.
    buffer_merge : "mean" or "median", optional
        How the buffers of the kept clients become one. By default their mean under plain `fedavg`, and
        the coordinate-wise median under every other rule: one client could put the mean anywhere.
    server_optimizer, server_lr : (default: "sgd", 1.0)
        The server's step along the aggregate: "sgd", "momentum" or "adam". The default is the plain new model.
    weight_decay : float or mapping (default: 0.0)
        A protection that asks nothing of clients: rate · parameters is added to the aggregate before the server's step,
        so that by default the new model is the rule's minus rate times the old one. `{"rate": 0.01, "decoupled": True}`
        shrinks the parameters beside the step instead. Buffers do not decay.
    cooling : bool or mapping (default: False)
        Whether the server's learning rate falls along half a cosine over the rounds of `start`, to zero or, with
        `{"last": 0.1}`, to that share. It gives back the accuracy that weight decay costs.
    round_timeout : float, optional
        Seconds to wait for replies in a round; `start`'s own timeout still counts. A silent node is not waited for
        again until it answers.
    node_timeout : float, optional (default: 60.0)
        Seconds to wait for more nodes after the last one connected, while there are too few for a round; then the run
        ends with an error that says how many are needed. None waits without end.
    seed : int, optional
        Makes the choice of nodes and the rule's own randomness repeatable.
    sampler : callable, optional
        Chooses the clients of a round itself: `(round, ids) -> ids`. The epsilon of `dp` takes the share that it picks
        for the sampling rate, which holds only if it draws them uniformly at random. `PoissonSampler(rate)` draws each
        client by itself, and gets the smaller epsilon of Poisson sampling.
    clients : mapping, optional
        Node id -> client id. Rows are then ordered, and a rule's memory is kept, by client id instead of node id.
    validate, train_on_root, probe_outputs : callables, optional
        For rules that need data of the server's own (`fang`, `fltrust`, `deepsight`).

    Notes
    -----
    The other parameters are FedAvg's. Results do not depend on the order in which replies arrive. `history` holds a
    `RoundReport` per round: what happened in it, with the reason for everyone who was not used.

    Examples
    --------
    >>> strategy = RobustAggregation({"name": "atm", "trim": 2}, fraction_train=0.8)
    >>> strategy.server.rule
    ATM(trim=2)
    """

    def __init__(
        self,
        rule: RuleLike = "atm",
        *,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: Callable[[list[RecordDict], str], MetricRecord] | None = None,
        evaluate_metrics_aggr_fn: Callable[[list[RecordDict], str], MetricRecord] | None = None,
        replies: ReplyKind = "arrays",
        buffers: Sequence[str] = BUFFER_NAMES,
        buffer_merge: BufferMerge | None = None,
        server_optimizer: OptimizerOptions | Mapping[str, Any] | str = "sgd",
        server_lr: float = 1.0,
        weight_decay: float | Mapping[str, Any] = 0.0,
        cooling: bool | Mapping[str, Any] = False,
        round_timeout: float | None = None,
        node_timeout: float | None = 60.0,
        seed: int | None = None,
        sampler: Sampler | None = None,
        clients: Mapping[int, int] | None = None,
        validate: Validate | None = None,
        train_on_root: TrainOnRoot | None = None,
        probe_outputs: ProbeOutputs | None = None,
    ) -> None:
        super().__init__(
            fraction_train=fraction_train,
            fraction_evaluate=fraction_evaluate,
            min_train_nodes=min_train_nodes,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=min_available_nodes,
            weighted_by_key=weighted_by_key,
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
            train_metrics_aggr_fn=train_metrics_aggr_fn,
            evaluate_metrics_aggr_fn=evaluate_metrics_aggr_fn,
        )
        if round_timeout is not None and not round_timeout > 0:
            raise InputError(f"round_timeout: {round_timeout!r} is not allowed; seconds greater than 0 are expected")
        self.server = RobustServer(
            rule,
            replies=replies,
            buffers=buffers,
            buffer_merge=buffer_merge,
            server_optimizer=server_optimizer,
            server_lr=server_lr,
            weight_decay=weight_decay,
            cooling=cooling,
            clients=clients,
            seed=seed,
            validate=validate,
            train_on_root=train_on_root,
            probe_outputs=probe_outputs,
            sampling_rate=fraction_train,
        )
        self.round_timeout = round_timeout
        self.node_timeout = checked_timeout(node_timeout)
        self.sampler = sampler
        self.history: list[RoundReport] = []
        self._patience: PatientGrid | None = None

    def summary(self) -> None:
        """Log summary configuration of the strategy."""
        log.info("\t├──> Aggregation rule: %s", self.server.rule.canonical())
        super().summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the federation, as `Strategy.start` does, without waiting for the dead.

        A run in which no round changed the model ends with RunError.
        """
        self.server.rounds = num_rounds
        self._patience = PatientGrid(grid, self.round_timeout)
        done = len(self.history)
        result = super().start(
            self._patience, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
        )
        require_progress(self.history[done:])
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the nodes of the round and remember what they are given."""
        self.server.send_record(arrays)
        if self.fraction_train == 0.0:
            return []
        nodes = self._choose("train", server_round, grid, self.fraction_train, self.min_train_nodes)
        return self._messages(server_round, arrays, config, nodes, MessageType.TRAIN)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the nodes that evaluate."""
        if self.fraction_evaluate == 0.0:
            return []
        nodes = self._choose("evaluate", server_round, grid, self.fraction_evaluate, self.min_evaluate_nodes)
        return self._messages(server_round, arrays, config, nodes, MessageType.EVALUATE)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next global arrays; metrics averaged over the kept nodes, and who was kept."""
        report = RoundReport(server_round)
        if self._patience is not None:
            report.silent = self._patience.silent
            report.set_aside.update(self._patience.broken.items())
        usable: list[Reply] = []
        for message in replies:
            node = message.metadata.src_node_id
            if message.has_error():
                report.failed[node] = plain(message.error.reason)
                continue
            try:
                usable.append(read_reply(message, self.weighted_by_key))
            except Exception as error:  # one reply never ends a round
                report.set_aside[node] = fault(error)
        usable = [reply for reply in usable if reply.node not in report.set_aside]
        arrays = self.server.next_record(usable, report)
        self.history.append(report)
        announce(report)
        by_node = {reply.node: reply.content for reply in usable}
        kept = [by_node[node] for node in report.kept_nodes]
        metrics = self._average(kept, self.train_metrics_aggr_fn)
        metrics["kept-nodes"] = report.kept_nodes
        metrics["dropped-nodes"] = report.dropped_nodes
        metrics["set-aside-nodes"] = sorted(report.set_aside)
        metrics["failed-nodes"] = sorted(report.failed)
        metrics["silent-nodes"] = list(report.silent)
        for name, value in report.notes.items():
            metrics[f"rule-{name}"] = value
        return arrays, metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Metrics averaged over the replies that can be read."""
        contents: dict[int, RecordDict] = {}
        for message in replies:
            node = message.metadata.src_node_id
            try:
                if message.has_error():
                    raise MalformedReplyError(f"an error ({plain(message.error.reason)})")
                read_weight(message.content, self.weighted_by_key)
                if node in contents:
                    raise MalformedReplyError("more than one reply")
                contents[node] = message.content
            except Exception as error:  # one reply never ends a round
                log.warning("round %d: evaluation of node %d not used: sent %s", server_round, node, fault(error))
        ordered = [contents[node] for node in sorted(contents, key=self.server.order)]
        return self._average(ordered, self.evaluate_metrics_aggr_fn) if ordered else None

    def _average(
        self, contents: list[RecordDict], average: Callable[[list[RecordDict], str], MetricRecord]
    ) -> MetricRecord:
        """Flower's average over the replies whose metrics are alike and finite; the odd ones are left out."""
        shapes = [_metric_shape(content) for content in contents]
        common = Counter(shape for shape in shapes if shape is not None).most_common(1)
        alike = [content for content, shape in zip(contents, shapes, strict=True) if common and shape == common[0][0]]
        if len(alike) < len(contents):
            log.warning(
                "the metrics of %d replies are not like the others' and are left out", len(contents) - len(alike)
            )
        if not any(read_weight(content, self.weighted_by_key) > 0 for content in alike):
            return MetricRecord()
        try:
            return average(alike, self.weighted_by_key)
        except Exception as error:  # metrics are what strangers say: they never end a round
            log.warning(
                "the metrics of the round could not be averaged (%s)", plain(f"{type(error).__name__}: {error}")
            )
            return MetricRecord()

    def _choose(self, purpose: str, server_round: int, grid: Grid, fraction: float, minimum: int) -> list[int]:
        """Nodes of a round; waits until enough are connected, but not forever."""
        # A sampler knows what it picks; else a round that the rule cannot work with is not begun.
        needed = self.server.needed if purpose == "train" and self.sampler is None else 1

        def wanted(connected: int) -> int:
            return max(int(connected * fraction), minimum, needed)

        nodes = wait_for_nodes(
            lambda: sorted(grid.get_node_ids(), key=self.server.order),
            lambda connected: max(self.min_available_nodes, wanted(connected)),
            self.node_timeout,
            self._why_so_many,
        )
        if self.sampler is not None and purpose == "train":
            by_client = {self.server.clients.get(node, node): node for node in nodes}
            chosen = [
                by_client[client] for client in self.sampler(server_round, list(by_client)) if client in by_client
            ]
        else:
            rng = numpy_generator(self.server.seed, f"flower {purpose}", server_round)
            chosen = [nodes[i] for i in sorted(rng.choice(len(nodes), wanted(len(nodes)), replace=False))]
        if purpose == "train":
            self.server.picked(len(chosen), len(nodes), getattr(self.sampler, "poisson_rate", None))
        log.info("configure_%s: Sampled %d nodes (out of %d)", purpose, len(chosen), len(nodes))
        return chosen

    def _why_so_many(self, enough: int) -> str:
        options = "min_available_nodes, min_train_nodes or min_evaluate_nodes ask for them"
        return why_so_many(self.server.rule, self.server.needed, enough, options)

    def _messages(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, nodes: list[int], message_type: str
    ) -> list[Message]:
        config["server-round"] = server_round
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return [Message(content=record, message_type=message_type, dst_node_id=node) for node in nodes]


def _metric_shape(content: RecordDict) -> tuple[tuple[str, int], ...] | None:
    """Names and lengths of a reply's metrics; None if a value is not a finite number."""
    record = next(iter(content.metric_records.values()))
    shape = []
    for name, value in record.items():
        values = value if isinstance(value, list) else [value]
        try:
            finite = bool(np.isfinite(np.asarray(values, dtype=np.float64)).all())
        except (TypeError, ValueError, OverflowError):
            finite = False
        if not finite:
            return None
        shape.append((name, len(values) if isinstance(value, list) else -1))
    return tuple(sorted(shape))
