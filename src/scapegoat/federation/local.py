"""What a client does with the model that it is given, and what it sends."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.models import FlatModel
from scapegoat.optimizers import OptimizerOptions
from scapegoat.randomness import derive
from scapegoat.registry import Component, Registry


class LocalRule(Component):
    """How a client turns the global parameters and its data into an update."""

    sends: ClassVar[Literal["gradient", "epochs"]]


registry: Registry[LocalRule] = Registry("local rule", "scapegoat.federation")


@registry.register("gradient")
class Gradient(LocalRule):
    """The gradient of one mini-batch at the global model, as the paper's equations say."""

    sends = "gradient"


@registry.register("epochs")
class Epochs(LocalRule):
    """`global - local` after local epochs, as federated systems deploy it."""

    sends = "epochs"
    epochs: Annotated[int, Field(ge=1)] = 1
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.1

    def train(
        self, model: FlatModel, start: Tensor, x: Tensor, y: Tensor, batch_size: int, seed: int, out: Tensor
    ) -> float:
        """Train from `start` on (x, y); write `start - local` to `out` and return the mean loss."""
        optimizer = OptimizerOptions(optimizer=self.optimizer, lr=self.lr)
        state: dict[str, Tensor] = {}
        local = start.clone()
        losses = []
        grad = torch.empty_like(start)
        for epoch in range(self.epochs):
            order = torch.randperm(len(y), generator=torch.Generator().manual_seed(derive(seed, "epoch", epoch)))
            for first in range(0, len(order), batch_size):
                rows = order[first : first + batch_size]
                _, loss = model.gradient(local, x[rows], y[rows], out=grad)
                optimizer.advance(local, grad, state)
                losses.append(loss)
        torch.sub(start, local, out=out)
        return sum(losses) / len(losses)


def draw_batch(size: int, batch_size: int, seed: int) -> Tensor:
    """Positions of a mini-batch drawn without replacement from `size` records."""
    generator = torch.Generator().manual_seed(seed)
    if size <= batch_size:
        return torch.arange(size)
    if size <= 16 * batch_size:
        return torch.randperm(size, generator=generator)[:batch_size]
    # For large shards a full permutation would cost more than the batch: draw, and redraw what came twice.
    rows = torch.randint(size, (batch_size,), generator=generator)
    taken = list(dict.fromkeys(rows.tolist()))
    while len(taken) < batch_size:
        extra = torch.randint(size, (batch_size - len(taken),), generator=generator)
        taken = list(dict.fromkeys(taken + extra.tolist()))
    return torch.tensor(taken)
