"""What a client does with the model that it is given, and what it sends."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from scapegoat.errors import InputError
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
    """`global - local` after local epochs, as federated systems deploy it.

    Where BatchNorm cannot normalise a last batch of one record, it sits the epoch out; another order draws another one.
    """

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
                loss = _loss(model, local, x[rows], y[rows], grad)
                if loss is not None:
                    optimizer.advance(local, grad, state)
                    losses.append(loss)
        torch.sub(start, local, out=out)
        return sum(losses) / len(losses) if losses else _untrained(model, start, x, y, batch_size)


def batch_gradient(model: FlatModel, start: Tensor, x: Tensor, y: Tensor, batch_size: int, out: Tensor) -> float:
    """Write the gradient of a batch to `out` and return the loss; a record that BatchNorm cannot normalise changes
    nothing."""
    loss = _loss(model, start, x, y, out)
    if loss is not None:
        return loss
    out.zero_()
    return _untrained(model, start, x, y, batch_size)


def _untrained(model: FlatModel, start: Tensor, x: Tensor, y: Tensor, batch_size: int) -> float:
    """The loss of a client with a single record, which sends no change; a user who asked for such batches is told."""
    if batch_size == 1:
        raise InputError("federation.batch_size: 1 is too few for a model with BatchNorm (allowed: 2 or more)")
    return float(F.cross_entropy(model.logits(start, x), y))


def _loss(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, grad: Tensor) -> float | None:
    """The loss of a batch, its gradient in `grad`; None for a single record that BatchNorm cannot normalise."""
    if len(y) > 1 or not model.has_statistics:
        return model.gradient(vector, x, y, out=grad)[1]
    # Tried, not ruled out: BatchNorm over the pixels of one image works.
    statistics = model.buffers()
    try:
        return model.gradient(vector, x, y, out=grad)[1]
    except ValueError:
        model.set_buffers(statistics)
        return None


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
