"""The rule's server behind Flower's records: what both of Flower's strategy APIs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from flwr.app import ArrayRecord

from scapegoat.aggregation import RuleLike
from scapegoat.errors import InputError
from scapegoat.integrations.flower.replies.records import FlowerLayout, record_of
from scapegoat.integrations.flower.replies.unsent import middle
from scapegoat.integrations.shared import robust_server
from scapegoat.integrations.shared.layout import ReplyKind
from scapegoat.integrations.shared.rounds import Reply, RoundReport
from scapegoat.optimizers import OptimizerOptions

# How the server tries a candidate model on data of its own: arrays -> (loss, error rate between 0 and 1).
Validate = Callable[[ArrayRecord], tuple[float, float]]
# How the server trains on root data of its own: the global arrays -> what a client would reply.
TrainOnRoot = Callable[[ArrayRecord], ArrayRecord]
# Class probabilities [samples, classes] of a candidate model on a batch of noise made from the seed.
ProbeOutputs = Callable[[ArrayRecord, int], Any]


class RobustServer(robust_server.RobustServer):
    """A rule with its memory, the server's optimizer, and the record that the clients were given."""

    kinds: ClassVar[tuple[ReplyKind, ...]] = ("arrays", "updates")

    def __init__(
        self,
        rule: RuleLike,
        *,
        validate: Validate | None = None,
        train_on_root: TrainOnRoot | None = None,
        probe_outputs: ProbeOutputs | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            rule,
            validate=None if validate is None else (lambda arrays: validate(record_of(arrays))),
            train_on_root=None if train_on_root is None else (lambda arrays: train_on_root(record_of(arrays))),
            probe_outputs=(
                None if probe_outputs is None else (lambda arrays, seed: probe_outputs(record_of(arrays), seed))
            ),
            **options,
        )

    def send_record(self, record: ArrayRecord) -> None:
        """Remember what the clients are given: their updates are relative to it."""
        self.send(FlowerLayout(record, self.buffer_names))

    def next_record(self, replies: Sequence[Reply], report: RoundReport) -> ArrayRecord | None:
        """The next global arrays as a record, or None if the round changes nothing; `report` is filled in."""
        told = self.begun
        if not told:
            self.send(self._around(replies))
        try:
            arrays = self.aggregate(replies, report)
        finally:
            if not told:
                self.forget()
        return None if arrays is None else record_of(arrays)

    def _around(self, replies: Sequence[Reply]) -> FlowerLayout:
        """A layout around the replies, for rules to which it does not matter what updates are relative to."""
        plain_step = self.optimizer.options == OptimizerOptions(optimizer="sgd", lr=1.0) and not self.protections
        if self.kind == "arrays" and plain_step and all(part.shift_free for part in self.rule.parts()):
            centre = middle(replies)
            if centre is not None:
                return FlowerLayout(centre, self.buffer_names)
        raise InputError("the arrays that were sent out are not known: call configure_train before aggregate_train")
