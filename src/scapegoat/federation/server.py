"""The server: the global parameters, the rule with its memory, the optimizer, and data of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scapegoat.aggregation import Aggregate, AggregationContext, Rule, Score, Stack
from scapegoat.federation.local import Epochs, LocalRule, batch_gradient, draw_batch
from scapegoat.models import FlatModel
from scapegoat.optimizers import OptimizerOptions
from scapegoat.randomness import derive, generator


class Server:
    """Aggregates and steps. It never learns who is malicious and never sees test or target data.

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
        validation: tuple[Tensor, Tensor],
        sampling_rate: float,
        rounds: int,
        seed: int,
        keeps_old: bool,
    ) -> None:
        self.model = model
        self.rule = rule
        self.optimizer = optimizer
        self.local = local
        self.batch_size = batch_size
        self.validation = validation
        self.sampling_rate = sampling_rate
        self.rounds = rounds
        self.seed = seed
        self.keeps_old = keeps_old
        self.parameters = model.take_initial()
        self.optimizer_state: dict[str, Tensor] = {}
        self.rule_state: dict[str, Tensor] = {}
        self.steps = 0

    def step(self, updates: Stack, client_ids: list[int], sample_counts: list[int], round_: int) -> Aggregate:
        """Aggregate the rows and move the global parameters; a round with no usable row changes nothing."""
        aggregate = self.rule(updates, self.context(client_ids, sample_counts, round_))
        self.steps += 1
        if bool(aggregate.kept.any()):
            if self.keeps_old:
                self.parameters = self.parameters.clone()
            self.optimizer.advance(self.parameters, aggregate.update, self.optimizer_state)
        return aggregate

    def context(self, client_ids: list[int], sample_counts: list[int], round_: int) -> AggregationContext:
        """What the rule is told beside the updates."""
        return AggregationContext(
            client_ids=tuple(client_ids),
            sample_counts=tuple(sample_counts),
            round=round_,
            generator=generator(self.seed, "rule", self.steps),
            score=self._score if len(self.validation[1]) else None,
            root_update=(lambda: self._root_update(round_)) if len(self.validation[1]) else None,
            output_probe=self._probe,
            layout=self.model.layout,
            state=self.rule_state,
            sampling_rate=self.sampling_rate,
            rounds=self.rounds,
        )

    def _candidate(self, update: Tensor) -> Tensor:
        """The parameters that the server would have after this update."""
        state = {name: tensor.clone() for name, tensor in self.optimizer_state.items()}
        parameters = self.parameters.clone()
        self.optimizer.advance(parameters, update, state)
        return parameters

    def _score(self, update: Tensor) -> Score:
        x, y = self.validation
        logits = self.model.logits(self._candidate(update), x)
        return Score(float(F.cross_entropy(logits, y)), float((logits.argmax(1) != y).float().mean()))

    def _root_update(self, round_: int) -> Tensor:
        """What the server itself would send, trained on its validation data as a client is on its own."""
        x, y = self.validation
        out = torch.empty(self.model.d)
        buffers = self.model.buffers()
        seed = derive(self.seed, "root", round_)
        if isinstance(self.local, Epochs):
            self.local.train(self.model, self.parameters, x, y, self.batch_size, seed, out)
        else:
            rows = draw_batch(len(y), self.batch_size, seed)
            batch_gradient(self.model, self.parameters, x[rows], y[rows], self.batch_size, out)
        self.model.set_buffers(buffers)
        return out

    def _probe(self, update: Tensor, seed: int) -> Tensor:
        """Class probabilities on noise, of a client's model: the global one after its update alone."""
        step = self.optimizer.lr if self.local.sends == "gradient" else 1.0
        noise = torch.rand(256, *self.model.input_shape, generator=generator(self.seed, "probe", seed))
        return self.model.logits(self.parameters - step * update, noise).softmax(1)
