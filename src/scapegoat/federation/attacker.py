"""The attacker's seat in the federation: its clients, its data, and the view that its attack gets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scapegoat.attacks import Attack, AttackerView, Crafted, Samples
from scapegoat.attacks.checked import craft_checked
from scapegoat.federation.local import Epochs, LocalRule, batch_gradient, draw_batch
from scapegoat.gradients import GradientOracle, client_gradients
from scapegoat.models import FlatModel
from scapegoat.randomness import derive, generator


@dataclass(frozen=True)
class OwnClients:
    """What the attacker's own clients would honestly send: trained on the mask data, nothing else.

    Attacks get it as it is, so it holds one seed a client and round, from which nobody gets back to the run's seed: the
    splits and the order of the targets follow from that one.
    """

    model: FlatModel
    start: Tensor
    mask: Samples
    local: LocalRule
    batch_size: int
    seeds: tuple[int, ...]

    def __call__(self) -> Tensor:
        """Honest updates [m, d], one a client."""
        out = torch.empty(len(self.seeds), self.model.d)
        buffers = self.model.buffers()
        for row, seed in enumerate(self.seeds):
            if isinstance(self.local, Epochs):
                self.local.train(self.model, self.start, self.mask.x, self.mask.y, self.batch_size, seed, out[row])
                continue
            rows = draw_batch(len(self.mask), self.batch_size, seed)
            x, y = self.mask.x[rows], self.mask.y[rows]
            if self.model.has_statistics:
                batch_gradient(self.model, self.start, x, y, self.batch_size, out[row])
            else:
                client_gradients(self.model, self.start, x, y, [len(rows)], out[row : row + 1])
        self.model.set_buffers(buffers)
        return out


@dataclass(frozen=True)
class Attacker:
    """The malicious clients and whoever controls them."""

    attack: Attack
    model: FlatModel
    targets: Samples
    wrong_labels: Tensor
    mask: Samples
    local: LocalRule
    batch_size: int
    seed: int
    trim: int | None

    def craft(self, round_: int, clients: list[int], start: Tensor, benign: Tensor) -> Crafted:
        """What the attacker's picked clients send, given the benign updates of this round.

        Full knowledge shows the attack the benign updates; partial knowledge its own clients' honest ones. The view
        holds nothing that leads to the rule, the splits or the run's seed.
        """
        purpose = "epochs" if isinstance(self.local, Epochs) else "batch"
        seeds = tuple(derive(self.seed, purpose, round_, client) for client in clients)
        own = OwnClients(self.model, start, self.mask, self.local, self.batch_size, seeds)
        if round_ < self.attack.start_round:
            return Crafted(own())
        view = AttackerView(
            round=round_,
            parameters=start,
            gradients=GradientOracle(self.model, start),
            targets=self.targets,
            wrong_labels=self.wrong_labels,
            mask=self.mask,
            peers=benign if self.attack.knowledge == "full" else own(),
            honest=own,
            senders=len(clients),
            local=self.local.sends,
            generator=generator(self.seed, "attack", round_),
            trim=self.trim if self.attack.name == "adaptive" else None,
        )
        return craft_checked(self.attack, view)
