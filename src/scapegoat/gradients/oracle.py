"""Gradients at fixed parameters: of a mean loss, and of single samples without ever stacking them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from scapegoat.devices import CPU, exact, host
from scapegoat.gradients.direct import direct_piece
from scapegoat.gradients.layer_gradients import Piece, Slot
from scapegoat.gradients.layer_map import RowStore, layer_map_for
from scapegoat.modelling.flat_model import FlatModel
from scapegoat.narrow_rows import NarrowRows


class SampleGradients:
    """The gradients of single samples, known by their inner products and weighted sums.

    No [samples, d] matrix exists for layers whose inner products follow from inputs and output gradients.
    """

    def __init__(
        self, pieces: Sequence[Piece], idle: Sequence[Slot], samples: int, d: int, device: torch.device = CPU
    ) -> None:
        """`idle` are the parameters that no sample has a gradient of."""
        self._pieces = pieces
        self._idle = idle
        self._samples = samples
        self._d = d
        self._device = device

    def __len__(self) -> int:
        return self._samples

    def gram(self) -> Tensor:
        """Inner products with each other [s, s], float64, on the host."""
        total = self._zeros(self._samples, self._samples)
        for piece in self._pieces:
            total += piece.gram()
        return host(total).to(torch.float64)

    def dot(self, vectors: Tensor | NarrowRows) -> Tensor:
        """Inner products with the rows of `vectors` [k, d]: [s, k], float64, on the host."""
        total = self._zeros(self._samples, len(vectors))
        for first, part in _in_float32(vectors):
            for piece in self._pieces:
                total[:, first : first + len(part)] += piece.dot(part)
        return host(total).to(torch.float64)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=exact(self._device), device=self._device)

    def combine(self, weights: Tensor) -> Tensor:
        """The sum of the gradients times `weights` [s], which are the host's: [d]."""
        out = torch.empty(self._d, device=self._device)
        for slot in self._idle:
            slot.of(out).zero_()
        weights = weights.to(torch.float32)
        for piece in self._pieces:
            piece.combine(weights, out)
        return out


def _in_float32(vectors: Tensor | NarrowRows) -> Iterator[tuple[int, Tensor]]:
    """The vectors, and where they begin: all at once, or one at a time where they are held in fewer bits."""
    if isinstance(vectors, Tensor) and vectors.dtype != torch.bfloat16:
        yield 0, vectors
        return
    for row in range(len(vectors)):
        yield row, vectors[row].float()[None]


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
        layer_map = layer_map_for(self.model, x, y)
        if layer_map.complete and not layer_map.convolves:
            reading = layer_map.read(self.model, x, y, torch.full((len(x),), 1 / len(x), device=x.device))
            if not reading.rest:
                total = torch.empty(self.model.d, device=self.vector.device)
                reading.total(slice(None), total)
                return total
        out = torch.zeros(self.model.d, device=self.vector.device)
        parts = torch.split(out, self.model.sizes)
        for part_x, part_y in zip(torch.split(x, layer_map.chunk), torch.split(y, layer_map.chunk), strict=True):
            with torch.enable_grad():
                loss = self.model.task.losses(self.model.outputs(part_x), part_y, "sum") / len(x)
            grads: tuple[Tensor | None, ...] = torch.autograd.grad(loss, self.model.parameters, allow_unused=True)
            for part, grad in zip(parts, grads, strict=True):
                if grad is not None:
                    part.view(grad.shape).add_(grad)
        return out

    def per_sample(self, x: Tensor, y: Tensor) -> SampleGradients:
        """The gradients of every sample's own loss."""
        self._ready()
        layer_map = layer_map_for(self.model, x, y)
        store = layer_map.store if layer_map.store.free() else RowStore()
        reading = layer_map.read(self.model, x, y, store=store)
        pieces = reading.pieces
        if reading.rest:
            pieces.append(direct_piece(self.model, x, y, reading.rest, layer_map.slots, self._ready))
        samples = SampleGradients(pieces, reading.idle, len(x), self.model.d, self.vector.device)
        store.lend(samples)
        return samples
