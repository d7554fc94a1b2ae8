"""Hostile clients that share the load, so that no two of them send the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from scapegoat.crafting.contract import AttackerView, Crafted, Samples, register
from scapegoat.crafting.wrapping import Around


@register("colluders")
class Colluders(Around):
    """The attacker's m clients of a round share the inner attack instead of sending the same update m times.

    With `load: targets` each poisons for its own m-th of the targets; with `load: turns` one of them poisons for all of
    the targets, a different one every round, and the others train honestly. A single one does all of the work.
    """

    load: Literal["targets", "turns"] = "targets"
    """What is shared: the targets, or the rounds."""

    def craft(self, view: AttackerView) -> Crafted:
        """One update per client, each from a share of the work."""
        if view.senders == 1:
            return self.poison.craft(view)
        if self.load == "turns":
            return self._turns(view)
        rows, notes, masks = list[Tensor](), dict[str, float](), set[int]()
        for place in range(view.senders):
            crafted = self.poison.craft(_share(view, place))
            rows.append(crafted.updates)
            masks.update(crafted.masks)
            # The record has one number per note: the largest, which is what gives an attacker away.
            notes |= {key: max(value, notes.get(key, value)) for key, value in crafted.notes.items()}
        return Crafted(torch.cat(rows), notes, tuple(sorted(masks)))

    def _turns(self, view: AttackerView) -> Crafted:
        turn = view.round % view.senders
        crafted = self.poison.craft(_alone(view, turn))
        updates = view.honest().clone()
        updates[turn] = crafted.updates[0]
        return replace(crafted, updates=updates)


def _alone(view: AttackerView, place: int) -> AttackerView:
    """The view of one of the attacker's clients, as if it were the only one."""

    def honest() -> Tensor:
        return view.honest()[place : place + 1]

    clients = view.clients
    if clients is not None:
        own = len(view.peers) + place
        clients = (*clients[: len(view.peers)], clients[own])
    return replace(view, honest=honest, senders=1, clients=clients)


def _share(view: AttackerView, place: int) -> AttackerView:
    """The view of one of them with every m-th target, from its own place on."""
    mine = torch.arange(place % len(view.targets), len(view.targets), view.senders, device=view.wrong_labels.device)
    targets = Samples(*view.targets.take(mine))
    return replace(_alone(view, place), targets=targets, wrong_labels=view.wrong_labels[mine])
