"""From the replies of a round to the next global arrays: the part that every framework's strategies share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from scapegoat import aggregation, protections
from scapegoat.aggregation import AggregationContext, Rule, RuleLike, Score
from scapegoat.errors import InputError
from scapegoat.integrations.shared.faults import NDArray
from scapegoat.integrations.shared.layout import BUFFER_NAMES, BufferMerge, Layout, ReplyKind
from scapegoat.integrations.shared.rounds import (
    Node,
    Reply,
    ReplyRows,
    RoundReport,
    client_number,
    observers,
    stack,
    without_duplicates,
)
from scapegoat.optimizers import OptimizerOptions, ServerOptimizer
from scapegoat.protections import ServerProtection, pace_of
from scapegoat.protections.cooling import Cooling
from scapegoat.protections.weight_decay import WeightDecay
from scapegoat.randomness import generator

# A model as named arrays.
Arrays = Mapping[str, NDArray]
# How the server tries a candidate model on data of its own: arrays -> (loss, error rate between 0 and 1).
Validate = Callable[[Arrays], tuple[float, float]]
# How the server trains on root data of its own: the global arrays -> what a client would reply.
TrainOnRoot = Callable[[Arrays], Mapping[str, Any]]
# Class probabilities [samples, classes] of a candidate model on a batch of noise made from the seed.
ProbeOutputs = Callable[[Arrays, int], Any]

# What a rule asks for of the server's own data, and the function of the user's that answers.
ANSWERS = {"score": "validate", "root_update": "train_on_root"}

# Rules that need more replies than this to do anything are not waited for.
_MOST_NEEDED = 1000


class RobustServer:
    """A rule with its memory, the server's optimizer, and the arrays that the clients were given.

    Updates are taken relative to the arrays that were sent out, and the next arrays are those minus the optimizer's
    step along the aggregate; raw weights never reach the rule.
    """

    kinds: ClassVar[tuple[ReplyKind, ...]] = ("arrays", "updates", "differences")
    """What clients of the framework can send."""

    def __init__(
        self,
        rule: RuleLike,
        *,
        replies: ReplyKind = "arrays",
        buffers: Sequence[str] = BUFFER_NAMES,
        buffer_merge: BufferMerge | None = None,
        server_optimizer: OptimizerOptions | Mapping[str, Any] | str = "sgd",
        server_lr: float = 1.0,
        weight_decay: float | Mapping[str, Any] = 0.0,
        cooling: bool | Mapping[str, Any] = False,
        clients: Mapping[Any, int] | None = None,
        seed: int | None = None,
        validate: Validate | None = None,
        train_on_root: TrainOnRoot | None = None,
        probe_outputs: ProbeOutputs | None = None,
        sampling_rate: float = 1.0,
    ) -> None:
        self.rule: Rule = aggregation.parse(rule)
        if replies not in self.kinds:
            raise InputError(f"replies: {replies!r} is not allowed (one of: {', '.join(self.kinds)})")
        if buffer_merge not in (None, "mean", "median"):
            raise InputError(f"buffer_merge: {buffer_merge!r} is not allowed (one of: mean, median)")
        given = {"validate": validate, "train_on_root": train_on_root}
        for part in self.rule.parts():
            answer = ANSWERS[part.asks_for] if part.asks_for is not None else None
            if answer is not None and given[answer] is None:
                raise InputError(f"{part.name} works with data of the server's own: give it {answer}=, a function")
        self.kind = replies
        self.buffer_names = tuple(buffers)
        self.buffer_merge = buffer_merge if buffer_merge is not None else _merge_for(self.rule)
        self.optimizer = ServerOptimizer(_optimizer(server_optimizer, server_lr))
        self.protections = (*_decay(weight_decay), *_cooling(cooling))
        self._pace = 1.0
        self.clients: dict[Node, int] = dict(clients) if clients is not None else {}
        # A seed that anybody can guess lets the noise of `dp` be subtracted and a sketch be evaded.
        self.seed = seed if seed is not None else int.from_bytes(np.random.default_rng().bytes(6))
        self.validate = validate
        self.train_on_root = train_on_root
        self.probe_outputs = probe_outputs
        self.sampling_rate = sampling_rate
        self.sampled: list[float] = []
        self.poisson = False
        self.rounds = 0
        self.steps = 0
        self.state: dict[str, Tensor] = {}
        self._layout: Layout | None = None

    @functools.cached_property
    def needed(self) -> int:
        """The fewest replies that the rule can work with."""
        for replies in range(1, _MOST_NEEDED):
            try:
                self.rule.check(replies)
            except InputError:
                continue
            return replies
        return 1  # the rule says itself, round by round, what is missing

    def picked(self, chosen: int, available: int, poisson_rate: float | None = None) -> None:
        """Note which share of the clients a round asks: what privacy by sampling is accounted from.

        Under Poisson sampling that is the rate at which each is drawn, not the share that came of it.
        """
        self.poisson = poisson_rate is not None
        self.sampled.append(min(1.0, chosen / max(available, 1)) if poisson_rate is None else poisson_rate)

    def send(self, layout: Layout) -> None:
        """Remember what the clients are given: their updates are relative to it."""
        self._layout = layout

    def forget(self) -> None:
        """No longer know what the clients were given."""
        self._layout = None

    @property
    def begun(self) -> bool:
        """Whether it is known what the clients were given."""
        return self._layout is not None

    def order(self, node: Node) -> tuple[int, int, str]:
        """Where a node's row goes: by client id where there is one, else by number or name. Never by arrival."""
        if node in self.clients:
            return 0, self.clients[node], ""
        return (1, node, "") if isinstance(node, int) else (2, 0, node)

    def client(self, node: Node) -> int:
        """The number by which rules know a client."""
        return self.clients[node] if node in self.clients else client_number(str(node))

    def aggregate(self, replies: Sequence[Reply], report: RoundReport) -> dict[str, NDArray] | None:
        """The next global arrays, or None if the round changes nothing; `report` is filled in."""
        layout = self._layout
        if layout is None:
            raise InputError("the arrays that were sent out are not known: no round was begun before replies came")
        single = without_duplicates(replies, layout, report.set_aside)
        usable = sorted(single, key=lambda reply: self.order(reply.node))
        rows = stack(usable, layout, self.kind, report.set_aside)
        report.nodes = tuple(reply.node for reply in rows.replies)
        report.kept = (False,) * len(report.nodes)
        report.norms = rows.norms
        updates = torch.from_numpy(rows.updates)
        arrays = self._step(layout, rows, updates, report)
        for observer in observers:
            observer(report, updates)
        return arrays

    def _step(self, layout: Layout, rows: ReplyRows, updates: Tensor, report: RoundReport) -> dict[str, NDArray] | None:
        if not rows.replies:
            report.skipped = "no reply could be used"
            return None
        self._pace = pace_of(self.protections, report.round - 1, self.rounds)
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
        kept = [buffers for buffers, used in zip(rows.buffers, report.kept, strict=True) if used]
        buffers = layout.merge_buffers(kept, self.buffer_merge)
        if layout.exact:
            parameters = torch.from_numpy(layout.vector())
            update = self._protected(parameters, aggregate.update)
            return layout.arrays(self.optimizer.step(parameters, update, self._pace).numpy(), buffers)
        return layout.moved(self._moved(layout, aggregate.update, self.optimizer), buffers)

    def _protected(self, parameters: Tensor, update: Tensor) -> Tensor:
        """The direction to step along, as the simulated server finds it; the parameters may move in place."""
        for protection in self.protections:
            update = protection.before_step(parameters, update, self.optimizer.options.lr * self._pace)
        return update

    def _moved(self, layout: Layout, update: Tensor, optimizer: ServerOptimizer) -> NDArray:
        """The step alone, to be added to the arrays as they were sent out, in each one's own precision."""
        start = torch.zeros(layout.d)
        if self.protections:
            sent = torch.from_numpy(layout.vector())
            parameters = sent.clone()
            update = self._protected(parameters, update)
            start = parameters - sent
        moved: NDArray = optimizer.step(start, update, self._pace).numpy()
        return moved

    def _context(self, layout: Layout, rows: ReplyRows, round_: int) -> AggregationContext:
        def candidate(update: Tensor) -> dict[str, NDArray]:
            trial = ServerOptimizer(self.optimizer.options, self.optimizer.state)
            return layout.moved(self._moved(layout, update, trial))

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
            client_ids=tuple(self.client(reply.node) for reply in rows.replies),
            sample_counts=tuple(round(reply.examples) for reply in rows.replies),
            round=round_ - 1,  # reports count rounds from 1, the rules from 0
            generator=generator(self.seed, "rule", self.steps),
            score=score if self.validate is not None else None,
            root_update=root_update if self.train_on_root is not None else None,
            output_probe=probe if self.probe_outputs is not None else None,
            layout=layout.shapes,
            state=self.state,
            sampling_rate=self.sampling_rate,
            rounds=self.rounds,
            sampled=tuple(self.sampled),
            sampling="poisson" if self.poisson else "fixed",
            parameters=lambda: torch.from_numpy(layout.vector()),
        )


def _merge_for(rule: Rule) -> BufferMerge:
    """Buffers pass the rule by: under any rule that resists a client, their merge has to resist it too."""
    return "median" if any(part.resists for part in rule.parts()) else "mean"


def _optimizer(value: OptimizerOptions | Mapping[str, Any] | str, lr: float) -> OptimizerOptions:
    if isinstance(value, OptimizerOptions):
        return value
    options = {"optimizer": value, "lr": lr} if isinstance(value, str) else {"lr": lr, **value}
    try:
        return OptimizerOptions(**options)
    except ValueError as error:
        raise InputError(f"server_optimizer: {value!r} with lr {lr!r} is not allowed ({_first_line(error)})") from None


def _decay(value: float | Mapping[str, Any]) -> tuple[ServerProtection, ...]:
    options = dict(value) if isinstance(value, Mapping) else {"rate": value}
    try:
        decay = protections.get("weight_decay", **options)
    except InputError as error:
        raise InputError(f"weight_decay: {value!r} is not allowed ({error})") from None
    assert isinstance(decay, WeightDecay)
    return (decay,) if decay.rate else ()


def _cooling(value: bool | Mapping[str, Any]) -> tuple[ServerProtection, ...]:
    if value is False:
        return ()
    try:
        return (Cooling(**({} if value is True else value)),)
    except (TypeError, ValueError) as error:
        raise InputError(f"cooling: {value!r} is not allowed ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-2] if len(lines) > 1 else lines[0]
