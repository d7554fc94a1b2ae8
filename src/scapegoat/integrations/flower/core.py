"""From the replies of a round to the next global arrays: the part that both of Flower's strategy APIs share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from scapegoat import aggregation
from scapegoat.aggregation import AggregationContext, Rule, Score
from scapegoat.errors import InputError
from scapegoat.integrations.flower.records import BUFFER_NAMES, BufferMerge, Layout, NDArray, ReplyKind
from scapegoat.integrations.flower.rounds import Reply, RoundReport, Rows, observers, stack, without_duplicates
from scapegoat.optimizers import OptimizerOptions, ServerOptimizer
from scapegoat.randomness import generator

log = logging.getLogger("flwr")

# How the server tries a candidate model on data of its own: arrays -> (loss, error rate between 0 and 1).
Validate = Callable[[ArrayRecord], tuple[float, float]]
# How the server trains on root data of its own: the global arrays -> what a client would reply.
TrainOnRoot = Callable[[ArrayRecord], ArrayRecord]
# Class probabilities [samples, classes] of a candidate model on a batch of noise made from the seed.
ProbeOutputs = Callable[[ArrayRecord, int], Any]


# Rules that cannot do a round without the server's own data, and what gives it to them.
NEEDS = {"fang": "validate", "fltrust": "train_on_root"}


class RobustServer:
    """A rule with its memory, the server's optimizer, and the arrays that the clients were given.

    Updates are taken relative to the arrays that were sent out, and the next arrays are those minus the optimizer's
    step along the aggregate; raw weights never reach the rule.
    """

    def __init__(
        self,
        rule: Any,
        *,
        replies: ReplyKind = "arrays",
        buffers: Sequence[str] = BUFFER_NAMES,
        buffer_merge: BufferMerge | None = None,
        server_optimizer: OptimizerOptions | Mapping[str, Any] | str = "sgd",
        server_lr: float = 1.0,
        clients: Mapping[int, int] | None = None,
        seed: int = 0,
        validate: Validate | None = None,
        train_on_root: TrainOnRoot | None = None,
        probe_outputs: ProbeOutputs | None = None,
        sampling_rate: float = 1.0,
    ) -> None:
        self.rule: Rule = aggregation.parse(rule)
        if replies not in ("arrays", "updates"):
            raise InputError(f"replies: {replies!r} is not allowed (one of: arrays, updates)")
        if buffer_merge not in (None, "mean", "median"):
            raise InputError(f"buffer_merge: {buffer_merge!r} is not allowed (one of: mean, median)")
        given = {"validate": validate, "train_on_root": train_on_root}
        for part in _parts(self.rule):
            if part in NEEDS and given[NEEDS[part]] is None:
                raise InputError(f"{part} works with data of the server's own: give it {NEEDS[part]}=, a function")
        self.kind = replies
        self.buffer_names = tuple(buffers)
        self.buffer_merge = buffer_merge if buffer_merge is not None else _merge_for(self.rule)
        self.optimizer = ServerOptimizer(_optimizer(server_optimizer, server_lr))
        self.clients = dict(clients) if clients is not None else {}
        self.seed = seed
        self.validate = validate
        self.train_on_root = train_on_root
        self.probe_outputs = probe_outputs
        self.sampling_rate = sampling_rate
        self.rounds = 0
        self.steps = 0
        self.state: dict[str, Tensor] = {}
        self._layout: Layout | None = None

    def send(self, arrays: ArrayRecord) -> None:
        """Remember what the clients are given: their updates are relative to it."""
        self._layout = Layout(arrays, self.buffer_names)

    def order(self, node: int) -> tuple[int, int]:
        """Where a node's row goes: by client id where there is one, else by node id. Never by arrival."""
        return (0, self.clients[node]) if node in self.clients else (1, node)

    def aggregate(self, replies: Sequence[Reply], report: RoundReport) -> ArrayRecord | None:
        """The next global arrays, or None if the round changes nothing; `report` is filled in."""
        layout = self._layout
        if layout is None:
            raise InputError("the arrays that were sent out are not known: call configure_train before aggregate_train")
        usable = sorted(without_duplicates(replies, report.set_aside), key=lambda reply: self.order(reply.node))
        rows = stack(usable, layout, self.kind, report.set_aside)
        report.nodes = tuple(reply.node for reply in rows.replies)
        report.kept = (False,) * len(report.nodes)
        report.norms = rows.norms
        updates = torch.from_numpy(rows.updates)
        arrays = self._step(layout, rows, updates, report)
        for observer in observers:
            observer(report, updates)
        return arrays

    def _step(self, layout: Layout, rows: Rows, updates: Tensor, report: RoundReport) -> ArrayRecord | None:
        if not rows.replies:
            report.skipped = "no reply could be used"
            return None
        try:
            self.rule.check(len(rows.replies))
            aggregate = self.rule(updates, self._context(layout, rows, report.round))
        except InputError as error:
            report.skipped = f"{self.rule.name or 'the rule'} cannot work with {len(rows.replies)} replies: {error}"
            return None
        self.steps += 1
        report.kept = tuple(bool(kept) for kept in aggregate.kept)
        report.notes = {name: float(value) for name, value in aggregate.notes.items()}
        for row in torch.nonzero(aggregate.rejected).flatten().tolist():
            report.set_aside[report.nodes[row]] = "an update that the rule could not read"
        if not any(report.kept):
            report.skipped = "the rule kept nobody"
            return None
        kept = [arrays for arrays, used in zip(rows.arrays, report.kept, strict=True) if used]
        buffers = layout.merge_buffers(kept, self.buffer_merge)
        if layout.exact:
            return layout.record(
                self.optimizer.step(torch.from_numpy(layout.vector()), aggregate.update).numpy(), buffers
            )
        # In other precisions the step is computed apart and added to the arrays as they were sent out.
        return layout.moved(self.optimizer.step(torch.zeros(layout.d), aggregate.update).numpy(), buffers)

    def _context(self, layout: Layout, rows: Rows, round_: int) -> AggregationContext:
        def candidate(update: Tensor) -> ArrayRecord:
            trial = ServerOptimizer(self.optimizer.options, self.optimizer.state)
            return layout.moved(trial.step(torch.zeros(layout.d), update).numpy())

        def score(update: Tensor) -> Score:
            assert self.validate is not None
            loss, error_rate = self.validate(candidate(update))
            return Score(float(loss), float(error_rate))

        def root_update() -> Tensor:
            assert self.train_on_root is not None
            trained = layout.open(self.train_on_root(layout.moved(np.zeros(layout.d, dtype=np.float32))))
            row: NDArray = np.empty(layout.d, dtype=np.float32)
            layout.write_update(trained, row, self.kind)
            return torch.from_numpy(row)

        def probe(update: Tensor, seed: int) -> Tensor:
            assert self.probe_outputs is not None
            step = self.optimizer.options.lr if self.kind == "updates" else 1.0
            return torch.as_tensor(
                self.probe_outputs(layout.moved((-step * update).numpy()), seed), dtype=torch.float32
            )

        return AggregationContext(
            client_ids=tuple(self.clients.get(reply.node, reply.node) for reply in rows.replies),
            sample_counts=tuple(round(reply.examples) for reply in rows.replies),
            round=round_ - 1,  # Flower counts rounds from 1, the rules from 0
            generator=generator(self.seed, "rule", self.steps),
            score=score if self.validate is not None else None,
            root_update=root_update if self.train_on_root is not None else None,
            output_probe=probe if self.probe_outputs is not None else None,
            layout=layout.shapes,
            state=self.state,
            sampling_rate=self.sampling_rate,
            rounds=self.rounds,
        )


def _merge_for(rule: Rule) -> BufferMerge:
    """Buffers pass the rule by: under any rule that resists a client, their merge has to resist it too."""
    return "mean" if _parts(rule) == ["fedavg"] else "median"


def _parts(rule: Rule) -> list[str]:
    """The names of the rule, or of all stages of a pipeline."""
    written: Any = rule.canonical()
    return [str(part["name"]) for part in (written if isinstance(written, list) else [written])]


def _optimizer(value: OptimizerOptions | Mapping[str, Any] | str, lr: float) -> OptimizerOptions:
    if isinstance(value, OptimizerOptions):
        return value
    options = {"optimizer": value, "lr": lr} if isinstance(value, str) else {"lr": lr, **value}
    try:
        return OptimizerOptions(**options)
    except ValueError as error:
        raise InputError(f"server_optimizer: {value!r} with lr {lr!r} is not allowed ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-2] if len(lines) > 1 else lines[0]


def announce(report: RoundReport) -> None:
    """Name in the log whoever was not used, and why."""
    for node, reason in sorted(report.failed.items()):
        log.warning("round %d: node %d failed: %s", report.round, node, reason)
    for node, reason in sorted(report.set_aside.items()):
        log.warning("round %d: node %d set aside: sent %s", report.round, node, reason)
    if report.skipped is not None:
        log.warning("round %d: the global model stays as it is: %s", report.round, report.skipped)
    elif report.dropped_nodes:
        names = ", ".join(str(node) for node in report.dropped_nodes)
        log.info(
            "round %d: the rule kept %d of %d updates; left out: %s",
            report.round,
            sum(report.kept),
            len(report.kept),
            names,
        )
