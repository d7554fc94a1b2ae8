"""What every protection shares: where it acts, and what it is asked there.

A protection changes how a model is trained so that it tells less about the records, where an aggregation rule decides
whose updates enter. The core asks it for what it does, never for its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from scapegoat.modelling.flat_model import FlatModel
from scapegoat.protecting.privacy import GaussianMechanism
from scapegoat.registry import Component, Registry

Place = Literal["server", "client"]


class Protection(Component):
    """A protection of training. Derive from `ServerProtection` or `ClientProtection`, which say where it acts."""

    acts: ClassVar[Place]
    """Who has to do it: the server alone, or every client."""

    needs_server_data: ClassVar[bool] = False
    """Whether it looks at records of the server's own."""

    def fits(self, model: FlatModel) -> None:
        """Raise InputError if the model cannot be trained in this way; called before the first round."""

    def beside(self, others: Sequence[Protection]) -> None:
        """Raise OptionError if what it promises does not hold together with one of these."""


@dataclass(frozen=True)
class Look:
    """What the server knows after a round.

    `round` counts from 0. `loss` is the mean training loss that the clients report (NaN or None if nobody did),
    `validation_loss` computes the global model's on the server's own records. `state` is the protection's memory, saved
    with the checkpoint; what is put into `notes` goes into the round's record. Where the server trains on some records
    of its own (`trains_in`), `leakage` is the AUC with which the global model tells them from those that it keeps out.
    """

    round: int
    loss: float | None
    validation_loss: Callable[[], float]
    state: MutableMapping[str, Tensor]
    notes: dict[str, float] = field(default_factory=dict)
    leakage: Callable[[], float] | None = None


class ServerProtection(Protection):
    """Acts on the server and asks nothing of the clients.

    Examples
    --------
    >>> class Smaller(ServerProtection):
    ...     def before_step(self, parameters: Tensor, update: Tensor, lr: float) -> Tensor:
    ...         return 0.5 * update
    >>> Smaller().acts, Smaller().trains_in
    ('server', False)
    """

    acts = "server"

    ends_training: ClassVar[bool] = False
    """Whether `stops` does anything."""

    @property
    def trains_in(self) -> bool:
        """Whether, as it is set, the server trains on half of its own records."""
        return False

    @property
    def listens(self) -> bool:
        """Whether, as it is set, it decides by the losses that clients report, which no noise protects."""
        return False

    def before_step(self, parameters: Tensor, update: Tensor, lr: float) -> Tensor:
        """The direction that the server's optimizer steps along in place of `update`, which is left as it is.

        `parameters` are the server's own, and may be moved in place; `lr` is the learning rate of this step.
        """
        return update

    def pace(self, done: float) -> float:
        """The share of the learning rate that a round's step takes; `done` is 0 in the first and below 1 in the last.

        Where the number of rounds is not known beforehand, `done` is 0 in all of them.
        """
        return 1.0

    def stops(self, look: Look) -> bool:
        """Whether training ends after this round; the model then stays as it is."""
        return False


@dataclass(frozen=True)
class Examples:
    """What a client trains on in one step: inputs `x` [n, ...], and `targets` [n, classes] in place of labels.

    Examples
    --------
    >>> import torch
    >>> batch = Examples(torch.zeros(2, 3), torch.tensor([[1.0, 0.0], [0.1, 0.9]]))
    >>> batch.targets.sum(1)
    tensor([1., 1.])
    """

    x: Tensor
    targets: Tensor


class ClientProtection(Protection):
    """Acts on every honest client, in each step of its training.

    Examples
    --------
    >>> class HardOnes(ClientProtection):
    ...     chooses_records = True
    ...     def teaching(self, losses: Tensor) -> Tensor:
    ...         return losses > 0.1
    >>> import torch
    >>> HardOnes().teaching(torch.tensor([0.05, 2.0]))
    tensor([False,  True])
    """

    acts = "client"

    changes_examples: ClassVar[bool] = False
    """Whether `examples` does anything."""

    mixes_records: ClassVar[bool] = False
    """Whether an example is made of several records, so that clipping it bounds no single one."""

    chooses_records: ClassVar[bool] = False
    """Whether `teaching` does anything."""

    def examples(self, examples: Examples, seed: int) -> Examples:
        """What is trained on in place of a batch; all chance comes from the seed, which is the step's own."""
        return examples

    def teaching(self, losses: Tensor) -> Tensor:
        """Which records of a batch, by their losses, have a gradient in this step [n]; the others count as zero.

        A record's own loss decides over it, nothing else.
        """
        raise NotImplementedError

    @property
    def mechanism(self) -> GaussianMechanism | None:
        """The clipping and the noise of each step, if there is any; batches are then drawn as it says."""
        return None


def pace_of(protections: Sequence[ServerProtection], round_: int, rounds: int) -> float:
    """The share of the learning rate that several protections leave for a round.

    Parameters
    ----------
    protections: those on the server.
    round_: the round, counted from 0.
    rounds: how many are planned; 0: not known.

    Returns
    -------
    The product of the shares that each of them leaves; 1 where none slows the server down.

    Examples
    --------
    >>> pace_of([], 10, 100)
    1
    """
    done = min(round_ / rounds, 1.0) if rounds else 0.0
    return math.prod(protection.pace(done) for protection in protections)


registry: Registry[Protection] = Registry("protection", Protection, "scapegoat.protections")
register = registry.register
get = registry.get
