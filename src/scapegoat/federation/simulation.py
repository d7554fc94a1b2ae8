"""The round loop, and all that it needs to go on after a stop."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation import Pipeline, Rule, Stack, trim_count
from scapegoat.aggregation.stack import collect
from scapegoat.attacks import Attack, Samples
from scapegoat.attacks.measures import whereabouts_in
from scapegoat.data import Dataset
from scapegoat.data.splits import Splits
from scapegoat.federation.attacker import Attacker
from scapegoat.federation.clients import BenignClients
from scapegoat.federation.record import RoundRecord
from scapegoat.federation.server import Server
from scapegoat.federation.setting import FederationSetting
from scapegoat.membership import inference, metrics
from scapegoat.models import FlatModel
from scapegoat.models.seeding import torch_seeded
from scapegoat.randomness import derive, numpy_generator

TRAIN_ACCURACY_RECORDS = 5000


class Simulation:
    """A federation under attack. `run_round` does one round; `state` and `restore` carry it over a stop."""

    def __init__(
        self,
        *,
        dataset: Dataset,
        splits: Splits,
        model: FlatModel,
        setting: FederationSetting,
        attack: Attack,
        rule: Rule,
        evaluate_every: int,
        seed: int,
    ) -> None:
        self.setting = setting
        self.splits = splits
        self.dataset = dataset
        self.model = model
        self.seed = seed
        self.evaluate_every = evaluate_every
        self.round = 0
        self.whole = True  # False inside a round, when the state must not be saved
        self.records: list[RoundRecord] = []

        # The order of the targets tells nothing about membership.
        order = torch.from_numpy(numpy_generator(seed, "target order").permutation(len(splits.targets)))
        rows = splits.targets[order]
        self.target_order = order
        self.member = (order < len(splits.members)).numpy()
        self.targets = Samples(dataset.inputs(rows), dataset.y[rows])
        mask = Samples(dataset.inputs(splits.mask), dataset.y[splits.mask])
        self.test = Samples(dataset.inputs(splits.test), dataset.y[splits.test])
        self.margins = np.empty((setting.rounds, len(rows)), dtype=np.float32)

        self.benign = BenignClients(dataset, splits.shards, model, setting.local, setting.batch_size, seed)
        self.attacker = Attacker(
            attack=attack,
            model=model,
            targets=self.targets,
            wrong_labels=splits.wrong_labels[order],
            mask=mask,
            local=setting.local,
            batch_size=setting.batch_size,
            seed=seed,
            trim=_trim(rule, setting.updates_per_step),
        )
        self.server = Server(
            model=model,
            rule=rule,
            optimizer=setting.server,
            local=setting.local,
            batch_size=setting.batch_size,
            validation=(dataset.inputs(splits.validation), dataset.y[splits.validation]),
            sampling_rate=setting.picked / setting.clients,
            rounds=setting.rounds,
            seed=seed,
            keeps_old=setting.schedule.memory > 0 or setting.malicious > 0,
        )
        self._sample_counts = [len(s) for s in splits.shards] + [len(mask)] * setting.malicious
        self._history: deque[Tensor] = deque([self.server.parameters], maxlen=setting.schedule.memory + 1)
        self._waiting: list[tuple[int, Tensor]] = []
        self._updates = torch.empty(setting.picked, model.d)

    @property
    def done(self) -> bool:
        """All rounds have been run."""
        return self.round >= self.setting.rounds

    def pick(self, round_: int) -> list[int]:
        """The clients of a round, in the order of their ids."""
        if self.setting.picked == self.setting.clients:
            return list(range(self.setting.clients))
        rng = numpy_generator(self.seed, "pick", round_)
        chosen = rng.choice(self.setting.clients, self.setting.picked, replace=False)
        return sorted(int(c) for c in chosen)

    def run_round(self) -> RoundRecord:
        """One round: choice, updates, aggregation, server step, scoring of the targets."""
        # Dropout draws from torch's own stream: it starts from the round's seed, so that a resumed run draws alike.
        with torch_seeded(derive(self.seed, "passes", self.round)):
            return self._run_round()

    def _run_round(self) -> RoundRecord:
        round_ = self.round
        self.whole = False
        picked = self.pick(round_)
        delays = self.setting.schedule.delays(self.seed, round_, picked)
        starts = [self._history[-1 - tau] for tau in delays]
        honest = sum(c < self.setting.benign for c in picked)
        updates = self._updates
        loss, statistics = (
            self.benign.updates(round_, picked[:honest], starts[:honest], updates[:honest])
            if honest
            else (float("nan"), torch.empty(0))
        )
        record = RoundRecord(round=round_, loss=loss)
        if honest < len(picked):
            # Who controls several clients uses the freshest model that any of them was given.
            start = starts[honest + int(np.argmin(delays[honest:]))]
            crafted = self.attacker.craft(round_, picked[honest:], start, updates[:honest])
            updates[honest:] = crafted.updates
            record.attack_notes = {k: float(v) for k, v in crafted.notes.items()}
            record.masks = [int(i) for i in crafted.masks]
        # The Gram matrix is computed once: for the record, and for the rules that rank by it.
        stack = collect(updates)
        if honest < len(picked) and not record.attack_notes and self.attacker.attack.knowledge == "full":
            # Of honest training an attack has nothing to say; the record still shows where it lies.
            record.attack_notes = whereabouts_in(stack.gram().numpy(), honest)
        if len(statistics):
            self.model.set_buffers(statistics)
        self._aggregate(round_, picked, delays, stack, record)
        self._history.append(self.server.parameters)
        self._score_targets(record)
        if (round_ + 1) % self.evaluate_every == 0 or round_ + 1 == self.setting.rounds:
            record.test_accuracy = self.accuracy(self.test)
        self.records.append(record)
        self.round += 1
        self.whole = True
        return record

    def _aggregate(self, round_: int, picked: list[int], delays: list[int], stack: Stack, record: RoundRecord) -> None:
        size = self.setting.updates_per_step
        if size == len(picked) and not self._waiting:
            self._step(round_, picked, stack, record)
            return
        # The stalest arrive last; the order among equals is drawn anew each round.
        ties = numpy_generator(self.seed, "arrival", round_).random(len(picked))
        arrival = sorted(range(len(picked)), key=lambda row: (delays[row], ties[row]))
        self._waiting += [(picked[row], stack.rows[row].clone()) for row in arrival]
        while len(self._waiting) >= size:
            batch, self._waiting = self._waiting[:size], self._waiting[size:]
            batch.sort(key=lambda item: item[0])
            self._step(round_, [c for c, _ in batch], collect(torch.stack([u for _, u in batch])), record)

    def _step(self, round_: int, clients: list[int], stack: Stack, record: RoundRecord) -> None:
        counts = [self._sample_counts[c] for c in clients]
        gram = stack.gram()
        aggregate = self.server.step(stack, clients, counts, round_)
        fine = ~aggregate.rejected
        angles = torch.full((len(clients),), torch.nan, dtype=torch.float64)
        angles[fine] = geometry.mean_angles(gram[fine][:, fine])
        record.clients += clients
        record.malicious += [c >= self.setting.benign for c in clients]
        record.kept += aggregate.kept.tolist()
        record.rejected += aggregate.rejected.tolist()
        record.mean_angle += angles.tolist()
        record.norm += gram.diagonal().sqrt().tolist()
        record.defense_notes |= {k: float(v) for k, v in aggregate.notes.items()}

    def _score_targets(self, record: RoundRecord) -> None:
        margin = inference.margins(self.model.logits(self.server.parameters, self.targets.x), self.targets.y)
        scores = margin.numpy()
        self.margins[record.round] = scores
        called = scores > 0
        true_positives = int((called & self.member).sum())
        record.attack_accuracy = float((called == self.member).mean())
        record.attack_precision = true_positives / max(int(called.sum()), 1)
        record.attack_recall = true_positives / max(int(self.member.sum()), 1)
        record.attack_auc = metrics.auc_value(scores, self.member)

    def accuracy(self, samples: Samples) -> float:
        """Share of samples whose label the global model predicts."""
        logits = self.model.logits(self.server.parameters, samples.x)
        return float((logits.argmax(1) == samples.y).float().mean())

    def train_accuracy(self) -> float:
        """Accuracy on the benign training records (a fixed draw of them where there are very many)."""
        rows = torch.cat(self.splits.shards)
        if len(rows) > TRAIN_ACCURACY_RECORDS:
            keep = numpy_generator(self.seed, "train accuracy").permutation(len(rows))[:TRAIN_ACCURACY_RECORDS]
            rows = rows[torch.from_numpy(keep)]
        return self.accuracy(Samples(self.dataset.inputs(rows), self.dataset.y[rows]))

    def state(self) -> dict[str, Tensor]:
        """All that the next round depends on, and all that was recorded, as tensors."""
        server = self.server
        state = {"parameters": server.parameters, "buffers": self.model.buffers()}
        state |= {f"optimizer/{k}": v for k, v in server.optimizer_state.items()}
        state |= {f"rule/{k}": v for k, v in server.rule_state.items()}
        state |= {f"history/{i:05d}": v for i, v in enumerate(self._history)}
        state |= {f"waiting/{i:05d}": v for i, (_, v) in enumerate(self._waiting)}
        state["margins"] = torch.from_numpy(self.margins[: self.round])
        plain: dict[str, Any] = {
            "round": self.round,
            "steps": server.steps,
            "waiting": [c for c, _ in self._waiting],
            "records": [r.as_dict() for r in self.records],
        }
        state["plain"] = torch.frombuffer(bytearray(json.dumps(plain).encode()), dtype=torch.uint8)
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        plain = json.loads(bytes(state["plain"].numpy()))
        server = self.server
        self.round, server.steps = plain["round"], plain["steps"]
        self.records = [RoundRecord(**r) for r in plain["records"]]
        self.margins[: self.round] = state["margins"].numpy()
        self.model.set_buffers(state["buffers"])
        server.optimizer_state.update(_below(state, "optimizer/"))
        server.rule_state.update(_below(state, "rule/"))
        self._history.clear()
        self._history.extend(_below(state, "history/").values())
        # The newest entry of the history is the present model: stale clients share its identity.
        server.parameters = self._history[-1]
        self._waiting = list(zip(plain["waiting"], _below(state, "waiting/").values(), strict=True))


def _below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key[len(prefix) :]: state[key].clone() for key in sorted(state) if key.startswith(prefix)}


def _trim(rule: Rule, updates: int) -> int | None:
    """What the adaptive attack is told: how many updates the rule trims at each end, if it trims."""
    deciding = rule.stages[-1] if isinstance(rule, Pipeline) else rule
    trim = getattr(deciding, "trim", None)
    return None if trim is None else trim_count(trim, updates)


def model_seed(seed: int) -> int:
    """The seed of the initial parameters."""
    return derive(seed, "model")
