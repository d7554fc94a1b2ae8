"""What every attack shares: what it may see, and what it sends."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.gradients import GradientOracle
from scapegoat.registry import Component, Registry

Held = Literal["float32", "bfloat16"]
"""What the updates of a round are held in."""


@dataclass(frozen=True)
class Samples:
    """Inputs `x` [n, ...] as the model takes them, and labels `y` [n].

    Examples
    --------
    >>> samples = Samples(torch.zeros(5, 3), torch.tensor([0, 1, 0, 1, 1]))
    >>> len(samples), samples.floats, samples.take(torch.tensor([1, 4]))[1]
    (5, 3, tensor([1, 1]))
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    @property
    def floats(self) -> int:
        """Numbers per record."""
        return math.prod(self.x.shape[1:])

    def take(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels at these positions."""
        positions = positions.to(self.x.device)
        return self.x[positions], self.y[positions]


@dataclass(frozen=True)
class AttackerView:
    """All that an attack may see in a round. It carries no membership, no rule and nobody else's data.

    `round` counts from 0, `parameters` [d] are the global ones that the attacker was given, `senders` is the number m
    of its clients in this round, `local` whether clients send a gradient or a model after local epochs, and all of its
    randomness comes from `generator`. `mask` are records of its own.
    `gradients` answers for the model at the parameters that the attacker was given. `targets` have their true labels,
    `wrong_labels` are the attacker's own draw, fixed for the run. `peers` [k, d] are the updates that the knowledge
    level grants: of the benign clients (full), or what the attacker's own clients would honestly have sent (partial).
    `honest` [m, d] gives what the attacker's m clients of this round would honestly have sent, trained on the mask
    data. `trim` is set for attacks that are told it (`told_trim`), as their threat model says; so is `clients`, the ids
    that the peers and then its own rows come from (`told_clients`, with full knowledge). `memory` is what the attack
    itself kept of the rounds before, empty at first: tensors by name, saved with the checkpoint.
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
    clients: tuple[int, ...] | None = None
    memory: MutableMapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Crafted:
    """What the attacker's clients send, and what there is to say about it.

    `updates` are [senders, d]. `notes` go into the round's record (angle, bound, alpha, infeasible_steps, norm_ratio);
    `masks` are the indices of the mask samples chosen.

    Examples
    --------
    >>> Crafted(torch.zeros(2, 10), notes={"angle": 0.3}).updates.shape
    torch.Size([2, 10])
    """

    updates: Tensor
    notes: dict[str, float] = field(default_factory=dict)
    masks: tuple[int, ...] = ()


class Attack(Component):
    """A hostile participant. `craft` turns a view into what its clients send.

    The class says what kind of attack it is; nothing asks for its name.

    Examples
    --------
    >>> class Loud(Attack):
    ...     scale: float = 3.0
    ...     def craft(self, view: AttackerView) -> Crafted:
    ...         return Crafted(self.scale * view.honest(), notes={"scale": self.scale})
    >>> Loud(scale=2.0).canonical()["scale"]
    2.0
    """

    told_trim: ClassVar[bool] = False
    """Whether its threat model grants it the trim of the federation's rule."""

    told_clients: ClassVar[bool] = False
    """Whether its threat model grants it whose update is whose, among those that it sees."""

    poisons: ClassVar[bool] = True
    """Whether it sends anything but what honest clients would; an attack that does not may send nothing at all."""

    uses_peers: ClassVar[bool] = True
    """Whether it looks at the updates of others; a client of a live federation knows only its own."""

    looks: ClassVar[bool] = True
    """Whether it reads `view.peers` at all, if only to say where it lies; an attack that does not may be shown none."""

    takes_bfloat16: ClassVar[bool] = False
    """Whether it reads its peers' updates where they are held in bfloat16; by `Peers` every attack does."""

    per_sample: ClassVar[bool] = False
    """Whether it asks for the gradient of every mask sample."""

    least_peers: ClassVar[int] = 0
    """Peers without which there is nothing to hide among."""

    knowledge: Literal["full", "partial"] = "full"
    """What it sees of others: the benign updates of the round (full), or only its own clients' (partial)."""
    targets: Annotated[int, Field(ge=2)] = 300
    """Records whose membership is asked for."""
    mask: Annotated[int, Field(ge=1)] = 300
    """Records of the attacker's own."""
    start_round: Annotated[int, Field(ge=0)] = 0
    """First round in which it attacks; honest before."""

    def reads(self, held: Held) -> bool:
        """Whether it reads updates that are held so."""
        return held == "float32" or self.takes_bfloat16

    def craft(self, view: AttackerView) -> Crafted:
        """The updates that the attacker's clients send this round."""
        raise NotImplementedError

    def parts(self) -> tuple[Attack, ...]:
        """The attacks that it is made of, itself first: what is true of one of them may be true of the whole."""
        return (self,)

    def aimed_at(self, targets: int) -> int:
        """How many of so many targets, the first ones of its view, it attacks; their leakage is told apart."""
        return targets


AttackLike = str | Mapping[str, Any] | Attack
"""An attack as a user gives it: its name, `{name: ..., option: ...}`, or an attack."""

SHARED = tuple(Attack.model_fields)
"""Options that every attack has."""


registry: Registry[Attack] = Registry("attack", Attack, "scapegoat.attacks")
register = registry.register
get = registry.get
