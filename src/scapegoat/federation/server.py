"""The server: the global parameters, the rule with its memory, the optimizer, and data of its own."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from scapegoat.aggregation import Aggregate, AggregationContext, Rule, Score, Stack
from scapegoat.attacks import Samples
from scapegoat.devices import host
from scapegoat.federation.local import LocalRule
from scapegoat.membership import metrics
from scapegoat.models import FlatModel
from scapegoat.optimizers import OptimizerOptions
from scapegoat.protections import Look, ServerProtection, pace_of
from scapegoat.randomness import derive, generator, numpy_generator


class Server:
    """Aggregates and steps. It never learns who is malicious and never sees test or target data.

    Once a protection has `stopped` it, it has its model for good.

    With `keeps_old` every step makes a new vector, because stale clients or an attacker may still hold the old one.
    """

    def __init__(
        self,
        *,
        model: FlatModel,
        rule: Rule,
        optimizer: OptimizerOptions,
        local: LocalRule,
        batch_size: int,
        validation: Samples,
        sampling_rate: float,
        rounds: int,
        seed: int,
        keeps_old: bool,
        protections: tuple[ServerProtection, ...] = (),
    ) -> None:
        self.model = model
        self.rule = rule
        self.optimizer = optimizer
        self.local = local
        self.batch_size = batch_size
        self.validation, self.planted = validation, Samples(validation.x[:0], validation.y[:0])
        if any(protection.trains_in for protection in protections):
            self._plant(seed)
        self.sampling_rate = sampling_rate
        self.rounds = rounds
        self.seed = seed
        self.keeps_old = keeps_old
        self.parameters = model.take_initial()
        self.optimizer_state: dict[str, Tensor] = {}
        self.rule_state: dict[str, Tensor] = {}
        self.protections = protections
        self.protection_state: dict[str, Tensor] = {}
        self.steps = 0
        self.stopped = False
        self._pace = 1.0

    def step(self, updates: Stack, client_ids: list[int], sample_counts: list[int], round_: int) -> Aggregate:
        """Aggregate the rows and move the global parameters; a round with no usable row changes nothing."""
        self._pace = pace_of(self.protections, round_, self.rounds)
        aggregate = self.rule(updates, self.context(client_ids, sample_counts, round_))
        self.steps += 1
        if bool(aggregate.kept.any()):
            if self.keeps_old:
                self.parameters = self.parameters.clone()
            update = aggregate.update
            if len(self.planted):
                # Its records count as much as a client's do, so that as much is memorised of them; the rule has no say.
                weight = len(self.planted) / (sum(sample_counts) + len(self.planted))
                update = torch.lerp(update, self._own_update(self.planted, "planted", round_), weight)
            self._advance(self.parameters, update, self.optimizer_state)
        return aggregate

    def _plant(self, seed: int) -> None:
        """Train on half of the server's own records, chosen at random, and keep the others out."""
        order = torch.from_numpy(numpy_generator(seed, "planted").permutation(len(self.validation)))
        trained, kept_out = order[: len(order) // 2].sort().values, order[len(order) // 2 :].sort().values
        everything = self.validation
        self.planted, self.validation = (Samples(*everything.take(rows)) for rows in (trained, kept_out))

    def _own_leakage(self) -> float:
        """The AUC with which the model tells the server's records that are trained on from those that are not."""
        task = self.model.task
        told = [
            task.margins(self.model.logits(self.parameters, own.x), own.y) for own in (self.planted, self.validation)
        ]
        member = np.repeat([True, False], [len(told[0]), len(told[1])])
        return metrics.auc_value(host(torch.cat(told)).numpy(), member)

    def _advance(self, parameters: Tensor, update: Tensor, state: dict[str, Tensor]) -> None:
        """Move the parameters in place, as the protections and the optimizer say."""
        for protection in self.protections:
            update = protection.before_step(parameters, update, self.optimizer.lr * self._pace)
        self.optimizer.advance(parameters, update, state, self._pace)

    def look(self, round_: int, loss: float) -> dict[str, float]:
        """Let the protections see what the round came to, and end training if one of them says so; what they note."""
        notes: dict[str, float] = {}
        for protection in self.protections:
            leakage = self._own_leakage if len(self.planted) else None
            look = Look(round_, loss, self._validation_loss, self.protection_state, notes, leakage)
            self.stopped |= protection.stops(look)
        return notes

    def _validation_loss(self) -> float:
        outputs = self.model.logits(self.parameters, self.validation.x)
        return float(host(self.model.task.losses(outputs, self.validation.y, "mean")))

    def context(self, client_ids: list[int], sample_counts: list[int], round_: int) -> AggregationContext:
        """What the rule is told beside the updates."""
        return AggregationContext(
            client_ids=tuple(client_ids),
            sample_counts=tuple(sample_counts),
            round=round_,
            generator=generator(self.seed, "rule", self.steps),
            score=self._score if len(self.validation) else None,
            root_update=(lambda: self.root_update(round_)) if len(self.validation) else None,
            output_probe=self.probe,
            layout=self.model.layout,
            state=self.rule_state,
            sampling_rate=self.sampling_rate,
            rounds=self.rounds,
            parameters=lambda: self.parameters,
        )

    def _candidate(self, update: Tensor) -> Tensor:
        """The parameters that the server would have after this update."""
        state = {name: tensor.clone() for name, tensor in self.optimizer_state.items()}
        parameters = self.parameters.clone()
        self._advance(parameters, update, state)
        return parameters

    def _score(self, update: Tensor) -> Score:
        x, y = self.validation.x, self.validation.y
        outputs, task = self.model.logits(self._candidate(update), x), self.model.task
        return Score(float(host(task.losses(outputs, y, "mean"))), task.error(outputs, y))

    def root_update(self, round_: int) -> Tensor:
        """What the server itself would send, trained on its validation data as a client without protections is."""
        return self._own_update(self.validation, "root", round_)

    def _own_update(self, records: Samples, purpose: str, round_: int) -> Tensor:
        out = torch.empty(self.model.d, device=self.model.device)
        buffers = self.model.buffers()
        seed = derive(self.seed, purpose, round_)
        self.local.alone(self.model, self.parameters, records, self.batch_size, seed, out)
        self.model.set_buffers(buffers)
        return out

    def probe(self, update: Tensor, seed: int) -> Tensor:
        """Class probabilities on noise, of a client's model: the global one after its update alone."""
        step = self.local.probe_step(self.optimizer)
        noise = torch.rand(256, *self.model.input_shape, generator=generator(self.seed, "probe", seed))
        noise = noise.to(self.model.device)
        return self.model.task.probabilities(self.model.logits(self.parameters - step * update, noise))
