"""Gradients at fixed parameters: of a mean loss, and of single samples without ever stacking them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scapegoat.gradients.direct import direct_piece
from scapegoat.gradients.layer_gradients import Piece, Slot
from scapegoat.gradients.plan import RowStore, plan_for
from scapegoat.modelling.flat_model import FlatModel


class SampleGradients:
    """The gradients of single samples, known by their inner products and weighted sums.

    No [samples, d] matrix exists for layers whose inner products follow from inputs and output gradients.
    """

    def __init__(self, pieces: Sequence[Piece], idle: Sequence[Slot], samples: int, d: int) -> None:
        """`idle` are the parameters that no sample has a gradient of."""
        self._pieces = pieces
        self._idle = idle
        self._samples = samples
        self._d = d

    def __len__(self) -> int:
        return self._samples

    def gram(self) -> Tensor:
        """Inner products with each other [s, s], float64."""
        total = torch.zeros(self._samples, self._samples, dtype=torch.float64)
        for piece in self._pieces:
            total += piece.gram()
        return total

    def dot(self, vectors: Tensor) -> Tensor:
        """Inner products with the rows of `vectors` [k, d]: [s, k], float64."""
        total = torch.zeros(self._samples, len(vectors), dtype=torch.float64)
        for piece in self._pieces:
            total += piece.dot(vectors)
        return total

    def combine(self, weights: Tensor) -> Tensor:
        """The sum of the gradients times `weights` [s]: [d]."""
        out = torch.empty(self._d)
        for slot in self._idle:
            slot.of(out).zero_()
        weights = weights.to(torch.float32)
        for piece in self._pieces:
            piece.combine(weights, out)
        return out


class GradientOracle:
    """Gradients of the task's loss at fixed parameters, in evaluation mode (BatchNorm: the running statistics)."""

    def __init__(self, model: FlatModel, vector: Tensor) -> None:
        self.model = model
        self.vector = vector

    def _ready(self) -> None:
        self.model.point_at(self.vector)
        self.model.module.eval()

    def mean(self, x: Tensor, y: Tensor) -> Tensor:
        """Gradient [d] of the mean loss."""
        self._ready()
        plan = plan_for(self.model, x, y)
        if plan.complete and not plan.convolves:
            reading = plan.read(self.model, x, y, torch.full((len(x),), 1 / len(x)))
            if not reading.rest:
                total = torch.empty(self.model.d)
                reading.total(slice(None), total)
                return total
        out = torch.zeros(self.model.d)
        parts = torch.split(out, self.model.sizes)
        for part_x, part_y in zip(torch.split(x, plan.chunk), torch.split(y, plan.chunk), strict=True):
            with torch.enable_grad():
                loss = self.model.task.losses(self.model.module(part_x), part_y, "sum") / len(x)
            grads: tuple[Tensor | None, ...] = torch.autograd.grad(loss, self.model.parameters, allow_unused=True)
            for part, grad in zip(parts, grads, strict=True):
                if grad is not None:
                    part.view(grad.shape).add_(grad)
        return out

    def per_sample(self, x: Tensor, y: Tensor) -> SampleGradients:
        """The gradients of every sample's own loss."""
        self._ready()
        plan = plan_for(self.model, x, y)
        store = plan.store if plan.store.free() else RowStore()
        reading = plan.read(self.model, x, y, store=store)
        pieces = reading.pieces
        if reading.rest:
            pieces.append(direct_piece(self.model, x, y, reading.rest, plan.slots, self._ready))
        samples = SampleGradients(pieces, reading.idle, len(x), self.model.d)
        store.lend(samples)
        return samples
