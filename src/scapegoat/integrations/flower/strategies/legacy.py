"""The same rules for apps on Flower's older strategy API (`flwr.server.strategy`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flwr.app import Array, ArrayRecord
from flwr.common import Parameters
from flwr.server.strategy import FedAvg

from scapegoat.aggregation import RuleLike
from scapegoat.integrations.flower.replies.records import BufferMerge, ReplyKind
from scapegoat.integrations.flower.replies.rounds import announce
from scapegoat.integrations.flower.strategies.robust_server import (
    ProbeOutputs,
    RobustServer,
    TrainOnRoot,
    Validate,
)
from scapegoat.integrations.flower.strategies.waiting import checked_timeout, wait_for_nodes, why_so_many
from scapegoat.integrations.shared.faults import fault, plain
from scapegoat.integrations.shared.rounds import Reply, RoundReport, checked_weight, client_number
from scapegoat.optimizers import OptimizerOptions

log = logging.getLogger("flwr")


class LegacyRobustAggregation(FedAvg):  # type: ignore[misc]
    """`flwr.server.strategy.FedAvg` with any rule in place of the mean.

    Takes what `RobustAggregation` takes about the `rule` (also `replies`, `seed`, `validate`, `train_on_root`,
    `probe_outputs`), the server's step (`server_optimizer`, `server_lr`, `weight_decay`) and buffers (`buffer_merge`);
    arrays have no names here, so that `buffers` are their places as text (`"3"`). `node_timeout` is how long
    to wait for further clients while there are too few for a round. All other keywords go to Flower's `FedAvg`.

    Examples
    --------
    >>> LegacyRobustAggregation("median", fraction_fit=0.5).server.rule
    Median()
    """

    def __init__(
        self,
        rule: RuleLike = "atm",
        *,
        replies: ReplyKind = "arrays",
        buffers: Sequence[str] = (),
        buffer_merge: BufferMerge | None = None,
        server_optimizer: OptimizerOptions | Mapping[str, Any] | str = "sgd",
        server_lr: float = 1.0,
        weight_decay: float | Mapping[str, Any] = 0.0,
        node_timeout: float | None = 60.0,
        seed: int | None = None,
        validate: Validate | None = None,
        train_on_root: TrainOnRoot | None = None,
        probe_outputs: ProbeOutputs | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(**keywords)
        self.server = RobustServer(
            rule,
            replies=replies,
            buffers=buffers,
            buffer_merge=buffer_merge,
            server_optimizer=server_optimizer,
            server_lr=server_lr,
            weight_decay=weight_decay,
            seed=seed,
            validate=validate,
            train_on_root=train_on_root,
            probe_outputs=probe_outputs,
            sampling_rate=self.fraction_fit,
        )
        self.node_timeout = checked_timeout(node_timeout)
        self.history: list[RoundReport] = []

    def num_fit_clients(self, num_available_clients: int) -> tuple[int, int]:
        """How many clients a round asks, as many as the rule needs at least, and how many must be connected."""
        chosen, available = super().num_fit_clients(num_available_clients)
        return max(chosen, self.server.needed), max(available, self.server.needed)

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:
        """Choose the clients as FedAvg does, and remember what they are given."""
        self._wait(client_manager, self.num_fit_clients)
        self.server.send_record(ArrayRecord(_named(parameters)))
        chosen = super().configure_fit(server_round, parameters, client_manager)
        self.server.picked(len(chosen), int(client_manager.num_available()))
        return chosen

    def configure_evaluate(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:
        """Choose the clients that evaluate as FedAvg does."""
        if self.fraction_evaluate > 0:
            self._wait(client_manager, self.num_evaluation_clients)
        return super().configure_evaluate(server_round, parameters, client_manager)

    def _wait(self, client_manager: Any, counts: Callable[[int], tuple[int, int]]) -> None:
        # FedAvg itself would wait for a day.
        options = "min_available_clients, min_fit_clients or min_evaluate_clients ask for them"
        wait_for_nodes(
            lambda: range(int(client_manager.num_available())),
            lambda connected: max(counts(connected)),
            self.node_timeout,
            lambda enough: why_so_many(self.server.rule, self.server.needed, enough, options),
        )

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[Parameters | None, dict[str, Any]]:
        """The next global parameters; metrics aggregated over the kept clients."""
        report = RoundReport(server_round)
        replies = []
        for client, result in results:
            node = client_number(client.cid)
            try:
                examples = checked_weight("num_examples", result.num_examples)
                replies.append(Reply(node, _named(result.parameters), examples, result))
            except Exception as error:  # one reply never ends a round
                report.set_aside[node] = fault(error)
        for failure in failures:
            if isinstance(failure, tuple):
                report.failed[client_number(failure[0].cid)] = plain(failure[1])
        arrays = self.server.next_record(replies, report)
        self.history.append(report)
        announce(report)
        kept = set(report.kept_nodes)
        metrics: dict[str, Any] = {}
        if self.fit_metrics_aggregation_fn:
            used = [reply.content for reply in replies if reply.node in kept]
            try:
                metrics = self.fit_metrics_aggregation_fn([(result.num_examples, result.metrics) for result in used])
            except Exception as error:  # metrics are what strangers say: they never end a round
                log.warning("the metrics of the round could not be averaged (%s)", plain(error))
        metrics |= {"kept": len(kept), "dropped": len(report.dropped_nodes), "set_aside": len(report.set_aside)}
        if arrays is None:
            return None, metrics
        return Parameters([array.data for array in arrays.values()], "numpy.ndarray"), metrics


def _named(parameters: Parameters) -> dict[str, Array]:
    # Types and shapes are read from the bytes themselves, never from what the sender claims.
    return {str(i): Array("", (), parameters.tensor_type, data) for i, data in enumerate(parameters.tensors)}
