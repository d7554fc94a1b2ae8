"""The round loop, and all that it needs to go on after a stop."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation import Stack
from scapegoat.attacks import Samples
from scapegoat.combining.stack import narrow, stacked
from scapegoat.crafting.measures import whereabouts_in
from scapegoat.devices import host, number
from scapegoat.federation.cast import Cast
from scapegoat.federation.gathering import Gathering, here
from scapegoat.federation.record import RoundRecord
from scapegoat.gradients import GradientOracle
from scapegoat.kernels.routes import Routes
from scapegoat.membership.server_view import ServerView, groups_of, look
from scapegoat.modelling.seeding import torch_seeded
from scapegoat.randomness import derive, numpy_generator

TRAIN_ACCURACY_RECORDS = 5000


class Simulation:
    """A federation under attack. `run_round` does one round; `state` and `restore` carry it over a stop."""

    def __init__(
        self, cast: Cast, evaluate_every: int, *, server_view: bool = False, updates: Gathering | None = None
    ) -> None:
        self.cast = cast
        self.setting, self.model, self.server, self.seed = cast.setting, cast.model, cast.server, cast.seed
        self.evaluate_every = evaluate_every
        self.round = 0
        self.whole = True  # False inside a round, when the state must not be saved
        self.records: list[RoundRecord] = []
        self.margins = np.empty((self.setting.rounds, len(cast.targets)), dtype=np.float32)
        self.server_view = _server_view(cast) if server_view else None
        self._suspects = groups_of(cast.owners, len(cast.targets)) if server_view else []
        self._history: deque[Tensor] = deque([self.server.parameters], maxlen=self.setting.schedule.memory + 1)
        self._waiting: list[tuple[int, Tensor]] = []
        self._sample_counts = cast.sample_counts
        self._updates: Gathering = here(cast) if updates is None else updates

    @property
    def done(self) -> bool:
        """All rounds have been run."""
        return self.round >= self.setting.rounds

    def run_round(self) -> RoundRecord:
        """One round: choice, updates, aggregation, server step, scoring of the targets."""
        # Dropout draws from torch's own stream: it starts from the round's seed, so that a resumed run draws alike.
        with torch_seeded(derive(self.seed, "passes", self.round), self.model.device):
            self.whole = False
            # A server that has stopped asks nobody: its model is scored as it is.
            record = RoundRecord(round=self.round) if self.server.stopped else self._trained()
            self._score(record)
        self.records.append(record)
        self.round += 1
        self.whole = True
        return record

    def _trained(self) -> RoundRecord:
        round_ = self.round
        picked = self.setting.pick(self.seed, round_)
        delays = self.setting.schedule.delays(self.seed, round_, picked)
        starts = [self._history[-1 - tau] for tau in delays]
        honest = sum(c < self.setting.benign for c in picked)
        updates = self._updates
        loss, statistics = updates.train(round_, picked[:honest], starts[:honest])
        record = RoundRecord(round=round_)
        if honest < len(picked):
            # Who controls several clients uses the freshest model that any of them was given.
            start = starts[honest + int(np.argmin(delays[honest:]))]
            attacker = self.cast.attacker
            seen = (
                updates.honest() if attacker.looks(round_) else torch.empty(0, self.model.d, device=self.model.device)
            )
            crafted = attacker.craft(round_, picked[honest:], start, seen, picked[:honest])
            updates.send(crafted.updates)
            record.attack_notes = {k: float(v) for k, v in crafted.notes.items()}
            record.masks = [int(i) for i in crafted.masks]
        if self.server_view is not None:
            oracle = GradientOracle(self.model, self._history[-1])
            targets = self.cast.targets
            self.server_view.add(picked, look(oracle, targets.x, targets.y, updates.matrix(), self._suspects))
        # The Gram matrix is computed once: for the record, and for the rules that rank by it.
        stack = updates.stack()
        if honest < len(picked) and not record.attack_notes and self.cast.attacker.attack.knowledge == "full":
            # Of honest training an attack has nothing to say; the record still shows where it lies.
            record.attack_notes = whereabouts_in(stack.gram().numpy(), honest)
        if len(statistics):
            self.model.set_buffers(statistics)
        self._aggregate(round_, picked, delays, stack, record)
        record.loss = number(loss)
        record.defense_notes |= self.server.look(round_, record.loss)
        self._history.append(self.server.parameters)
        return record

    @property
    def picked(self) -> Iterator[list[int]]:
        """Who was asked in each round so far that asked anybody."""
        return (self.setting.pick(self.seed, record.round) for record in self.records if record.loss is not None)

    def _aggregate(self, round_: int, picked: list[int], delays: list[int], stack: Stack, record: RoundRecord) -> None:
        size = self.setting.updates_per_step
        if size == len(picked) and not self._waiting:
            self._step(round_, picked, stack, record)
            return
        # The stalest arrive last; the order among equals is drawn again each round.
        ties = numpy_generator(self.seed, "arrival", round_).random(len(picked))
        arrival = sorted(range(len(picked)), key=lambda row: (delays[row], ties[row]))
        few = self.setting.updates == "bfloat16"
        dtype = torch.bfloat16 if few else torch.float32
        self._waiting += [(picked[row], stack.rows[row].to(dtype, copy=True)) for row in arrival]
        while len(self._waiting) >= size:
            batch, self._waiting = self._waiting[:size], self._waiting[size:]
            batch.sort(key=lambda item: item[0])
            rows = [u for _, u in batch]
            arrived = narrow(rows) if few else stacked(torch.stack(rows))
            self._step(round_, [c for c, _ in batch], arrived, record)

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

    def _score(self, record: RoundRecord) -> None:
        margin = self.model.task.margins(
            self.model.logits(self.server.parameters, self.cast.targets.x), self.cast.targets.y
        )
        scores = host(margin).numpy()
        self.margins[record.round] = scores
        record.score(scores, self.cast.member)
        if (record.round + 1) % self.evaluate_every == 0 or record.round + 1 == self.setting.rounds:
            record.test_accuracy = self.accuracy(self.cast.test)

    def accuracy(self, samples: Samples) -> float:
        """How good the global model is on samples: the share of classes that it predicts, or the task's metric."""
        return self.model.task.score(self.model.logits(self.server.parameters, samples.x), samples.y)

    def train_accuracy(self) -> float:
        """Accuracy on the benign training records (a fixed draw of them where there are very many)."""
        rows, records = self._rows_trained_on(), self.cast.benign.dataset
        return self.accuracy(Samples(records.inputs(rows), records.targets(rows)))

    def train_majority(self) -> float:
        """What the best answer that is the same for all of these records gets."""
        return self.model.task.baseline(self.cast.benign.dataset.targets(self._rows_trained_on()))

    def _rows_trained_on(self) -> Tensor:
        rows = torch.cat(self.cast.splits.shards)
        if len(rows) > TRAIN_ACCURACY_RECORDS:
            keep = numpy_generator(self.seed, "train accuracy").permutation(len(rows))[:TRAIN_ACCURACY_RECORDS]
            rows = rows[torch.from_numpy(keep)]
        return rows

    def state(self) -> dict[str, Tensor]:
        """All that the next round depends on, and all that was recorded, as tensors."""
        server = self.server
        state = {"parameters": server.parameters, "buffers": self.model.buffers()}
        state |= {f"optimizer/{k}": v for k, v in server.optimizer_state.items()}
        state |= {f"rule/{k}": v for k, v in server.rule_state.items()}
        state |= {f"protection/{k}": v for k, v in server.protection_state.items()}
        state |= {f"attacker/{k}": v for k, v in self.cast.attacker.memory.items()}
        state |= {f"history/{i:05d}": v for i, v in enumerate(self._history)}
        state |= {f"waiting/{i:05d}": v for i, (_, v) in enumerate(self._waiting)}
        state["margins"] = torch.from_numpy(self.margins[: self.round])
        if self.server_view is not None:
            state |= {f"server view/{k}": v for k, v in self.server_view.state().items()}
        plain: dict[str, Any] = {
            "round": self.round,
            "steps": server.steps,
            "stopped": server.stopped,
            "routes": self.model.routes.as_dict(),
            "waiting": [c for c, _ in self._waiting],
            "records": [r.as_dict() for r in self.records],
            "tensors": sorted(state),
        }
        elsewhere = sorted(name for name, tensor in state.items() if tensor.device.type != "cpu")
        if elsewhere:
            plain["on_device"] = elsewhere
        state["plain"] = torch.frombuffer(bytearray(json.dumps(plain).encode()), dtype=torch.uint8)
        return state

    @staticmethod
    def routes_in(state: dict[str, Tensor]) -> Routes:
        """The routes of a run that `state` was taken of."""
        return Routes.parse(json.loads(bytes(state["plain"].numpy())).get("routes", {}))

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave, all of it: an optimizer without its moments would start them at zero."""
        plain = json.loads(bytes(state["plain"].numpy()))
        if sorted(state) != sorted([*plain["tensors"], "plain"]):
            raise ValueError(f"{', '.join(sorted({*plain['tensors']} ^ ({*state} - {'plain'})))} missing or unknown")
        placed = {*plain.get("on_device", ())}
        state = {name: v.to(self.model.device) if name in placed else v for name, v in state.items()}
        server = self.server
        self.round, server.steps = plain["round"], plain["steps"]
        self.records = [RoundRecord(**r) for r in plain["records"]]
        self.margins[: self.round] = state["margins"].numpy()
        self.model.set_buffers(state["buffers"])
        server.optimizer_state.update(_below(state, "optimizer/"))
        server.rule_state.update(_below(state, "rule/"))
        if self.server_view is not None:
            self.server_view.restore(_below(state, "server view/"))
        server.protection_state.update(_below(state, "protection/"))
        self.cast.attacker.memory.update(_below(state, "attacker/"))
        server.stopped = plain.get("stopped", False)
        self.model.routes = self.routes_in(state)
        self._history.clear()
        self._history.extend(_below(state, "history/").values())
        # The newest entry of the history is the present model: stale clients share its identity.
        server.parameters = self._history[-1]
        self._waiting = list(zip(plain["waiting"], _below(state, "waiting/").values(), strict=True))


def _server_view(cast: Cast) -> ServerView:
    """A server that knows what the protocol tells it: how many records each client has, and how it trains on them."""
    setting = cast.setting
    shares = [setting.local.share(count, setting.batch_size) for count in cast.sample_counts]
    known = np.array([share for share in shares if share is not None])
    if len(known) < len(shares):
        return ServerView(setting.clients, len(cast.targets))
    return ServerView(setting.clients, len(cast.targets), chance=known[:, 0], weight=known[:, 1])


def _below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key[len(prefix) :]: state[key].clone() for key in sorted(state) if key.startswith(prefix)}
