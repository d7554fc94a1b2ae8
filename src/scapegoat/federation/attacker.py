"""The attacker's seat in the federation: its clients, its data, and the view that its attack gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from scapegoat.attacks import Attack, AttackerView, Crafted, Samples
from scapegoat.crafting.checked import craft_checked
from scapegoat.federation.local import LocalRule
from scapegoat.gradients import GradientOracle
from scapegoat.models import FlatModel
from scapegoat.randomness import derive, generator


@dataclass(frozen=True)
class OwnClients:
    """What the attacker's own clients would honestly send: trained on the mask data, nothing else.

    Attacks get it as it is, so it holds one seed per client and round, from which nobody gets back to the run's seed:
    the splits and the order of the targets follow from that one.
    """

    model: FlatModel
    start: Tensor
    mask: Samples
    local: LocalRule
    batch_size: int
    seeds: tuple[int, ...]

    def __call__(self) -> Tensor:
        """Honest updates [m, d], one per client."""
        out = torch.empty(len(self.seeds), self.model.d, device=self.model.device)
        for row, seed in enumerate(self.seeds):
            self.local.updates(self.model, [self.start], [self.mask], self.batch_size, [seed], out[row : row + 1])
        return out


@dataclass(frozen=True)
class Attacker:
    """The malicious clients and whoever controls them; `memory` is what the attack keeps from round to round."""

    attack: Attack
    model: FlatModel
    targets: Samples
    wrong_labels: Tensor
    mask: Samples
    local: LocalRule
    batch_size: int
    seed: int
    trim: int | None
    memory: dict[str, Tensor] = field(default_factory=dict)

    def looks(self, round_: int) -> bool:
        """Whether the attack may look at what the honest clients send this round."""
        attack = self.attack
        return round_ >= attack.start_round and attack.knowledge == "full" and any(p.looks for p in attack.parts())

    def craft(self, round_: int, clients: list[int], start: Tensor, benign: Tensor, honest: Sequence[int]) -> Crafted:
        """What the attacker's picked clients send, given the benign updates of this round and the ids they came from.

        Full knowledge shows the attack the benign updates; partial knowledge its own clients' honest ones. The view
        holds nothing that leads to the rule, the splits or the run's seed.
        """
        own = self.own(round_, clients, start)
        if round_ < self.attack.start_round:
            return Crafted(own())
        full, parts = self.attack.knowledge == "full", self.attack.parts()
        view = AttackerView(
            round=round_,
            parameters=start,
            gradients=GradientOracle(self.model, start),
            targets=self.targets,
            wrong_labels=self.wrong_labels,
            mask=self.mask,
            peers=benign if full else own(),
            honest=own,
            senders=len(clients),
            local=self.local.sends,
            generator=generator(self.seed, "attack", round_),
            trim=self.trim if any(part.told_trim for part in parts) else None,
            clients=(*honest, *clients) if full and any(part.told_clients for part in parts) else None,
            memory=self.memory,
        )
        return craft_checked(self.attack, view)

    def own(self, round_: int, clients: list[int], start: Tensor) -> OwnClients:
        """What the attacker's clients would honestly send this round."""
        seeds = tuple(derive(self.seed, self.local.purpose, round_, client) for client in clients)
        return OwnClients(self.model, start, self.mask, self.local, self.batch_size, seeds)
