"""What every attack shares: what it may see, and what it sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.gradients import GradientOracle
from scapegoat.registry import Component, Registry


@dataclass(frozen=True)
class Samples:
    """Inputs as the model takes them, and labels."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class AttackerView:
    """All that an attack may see in a round. It carries no membership, no rule and nobody else's data.

    `gradients` answers for the model at the parameters that the attacker was given. `targets` have their true labels,
    `wrong_labels` are the attacker's own draw, fixed for the run. `peers` [k, d] are the updates that the knowledge
    level grants: of the benign clients (full), or what the attacker's own clients would honestly have sent (partial).
    `honest` [m, d] gives what the attacker's m clients of this round would honestly have sent, trained on the mask
    data. `trim` is set for the adaptive attack alone, as its threat model says.
    """

    round: int
    parameters: Tensor
    gradients: GradientOracle
    targets: Samples
    wrong_labels: Tensor
    mask: Samples
    peers: Tensor
    honest: Callable[[], Tensor]
    senders: int
    local: Literal["gradient", "epochs"]
    generator: torch.Generator
    trim: int | None = None


@dataclass(frozen=True)
class Crafted:
    """What the attacker's clients send, [senders, d], and what there is to say about it.

    `notes` go into the round's record (angle, bound, alpha, infeasible_steps, norm_ratio); `masks` are the indices of
    the mask samples chosen.
    """

    updates: Tensor
    notes: dict[str, float] = field(default_factory=dict)
    masks: tuple[int, ...] = ()


class Attack(Component):
    """A hostile participant. `craft` turns a view into what its clients send."""

    knowledge: Literal["full", "partial"] = "full"
    targets: Annotated[int, Field(ge=2)] = 300
    mask: Annotated[int, Field(ge=1)] = 300
    start_round: Annotated[int, Field(ge=0)] = 0

    def craft(self, view: AttackerView) -> Crafted:
        """The updates that the attacker's clients send this round."""
        raise NotImplementedError


registry: Registry[Attack] = Registry("attack", "scapegoat.attacks")
register = registry.register
get = registry.get
