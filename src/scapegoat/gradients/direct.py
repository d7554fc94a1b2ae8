"""Per-sample gradients by differentiating each sample, for parameters whose layer is not understood."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from scapegoat.gradients.layer_gradients import BLOCK_FLOATS, Piece, SampleRows, Slot
from scapegoat.kernels.row_products import self_products
from scapegoat.modelling.flat_model import FlatModel

KEPT_FLOATS = 100_000_000
"""Written-out gradients that are kept (400 MB); of more, some parameters at a time are computed when they are asked."""


def direct_piece(
    model: FlatModel, x: Tensor, y: Tensor, indices: Sequence[int], slots: Sequence[Slot], ready: Callable[[], None]
) -> Piece:
    """The gradients of the parameters with these indices; `ready` puts the model back where they are to be taken."""
    if len(x) * sum(slots[i].size for i in indices) <= KEPT_FLOATS:
        return sample_rows(model, x, y, indices, slots)
    return Recomputed(model, x, y, _groups(indices, slots, len(x)), slots, ready)


def sample_rows(model: FlatModel, x: Tensor, y: Tensor, indices: Sequence[int], slots: Sequence[Slot]) -> SampleRows:
    """The gradients of the parameters with these indices, written out: `vmap(grad)` in chunks, else one by one."""
    return rows_and_losses(model, x, y, indices, slots)[0]


def rows_and_losses(
    model: FlatModel, x: Tensor, y: Tensor, indices: Sequence[int], slots: Sequence[Slot]
) -> tuple[SampleRows, Tensor]:
    """The same, and each sample's loss."""
    sizes = [slots[i].size for i in indices]
    parts = [torch.empty(len(x), size, device=x.device) for size in sizes]
    # torch batches a recurrent layer by a loop of its own that is ten times slower than ours.
    if any(isinstance(module, nn.RNNBase) for module in model.module.modules()):
        losses = _one_by_one(model, x, y, indices, parts)
    else:
        try:
            losses = _batched(model, x, y, indices, parts)
        except (RuntimeError, NotImplementedError, ValueError):
            # Not every operator has a batching rule, and Python that looks at values cannot be batched.
            losses = _one_by_one(model, x, y, indices, parts)
    return SampleRows(list(zip([slots[i] for i in indices], parts, strict=True))), losses


def _batched(model: FlatModel, x: Tensor, y: Tensor, indices: Sequence[int], parts: Sequence[Tensor]) -> Tensor:
    names = [model.layout[i][0] for i in indices]
    values = {name: model.parameters[i].detach() for name, i in zip(names, indices, strict=True)}

    def loss(parameters: dict[str, Tensor], sample: Tensor, label: Tensor) -> Tensor:
        with model.passing():
            outputs = functional_call(model.module, parameters, (sample.unsqueeze(0),))
        return model.task.losses(outputs.float(), label.unsqueeze(0), "mean")

    per_sample = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
    chunk = max(1, min(32, BLOCK_FLOATS // max(1, sum(part.shape[1] for part in parts))))
    losses = torch.empty(len(x), device=x.device)
    # Fused attention cannot be batched, the plain one can; other operators may be slow, which helps nobody to know.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        for start in range(0, len(x), chunk):
            here = slice(start, start + chunk)
            found, losses[here] = per_sample(values, x[here], y[here])
            for name, part in zip(names, parts, strict=True):
                part[here] = found[name].reshape(-1, part.shape[1])
    return losses


def _one_by_one(model: FlatModel, x: Tensor, y: Tensor, indices: Sequence[int], parts: Sequence[Tensor]) -> Tensor:
    losses = torch.empty(len(x), device=x.device)
    wanted = [model.parameters[i] for i in indices]
    for s in range(len(x)):
        with torch.enable_grad():
            loss = model.task.losses(model.outputs(x[s : s + 1]), y[s : s + 1], "mean")
        grads: tuple[Tensor | None, ...] = torch.autograd.grad(loss, wanted, allow_unused=True)
        for part, found in zip(parts, grads, strict=True):
            part[s] = 0.0 if found is None else found.detach().reshape(-1)
        losses[s] = loss.detach()
    return losses


def _groups(indices: Sequence[int], slots: Sequence[Slot], samples: int) -> list[list[int]]:
    """The parameters in groups whose written-out gradients fit; one that does not fit alone is a group of its own."""
    groups: list[list[int]] = []
    room = 0
    for i in indices:
        needed = samples * slots[i].size
        if needed > room:
            groups.append([])
            room = KEPT_FLOATS
        groups[-1].append(i)
        room -= needed
    return groups


class Recomputed:
    """Gradients too large to keep: computed again, a group of parameters at a time, for every question."""

    def __init__(
        self,
        model: FlatModel,
        x: Tensor,
        y: Tensor,
        groups: list[list[int]],
        slots: Sequence[Slot],
        ready: Callable[[], None],
        weights: Tensor | None = None,
    ) -> None:
        self._model, self._x, self._y, self._groups, self._slots, self._ready = model, x, y, groups, slots, ready
        self._weights = weights

    @staticmethod
    def joined(pieces: list[Recomputed]) -> Recomputed:
        """It always holds all samples."""
        (piece,) = pieces
        return piece

    def _rows(self) -> Iterator[SampleRows]:
        for group in self._groups:
            self._ready()
            rows = sample_rows(self._model, self._x, self._y, group, self._slots)
            yield rows if self._weights is None else rows.weighted(self._weights)

    def gram(self) -> Tensor:
        """G G^T."""
        total = torch.zeros(len(self._x), len(self._x), device=self._x.device)
        for rows in self._rows():
            for _, part in rows.parts:
                total += self_products(part)
        return total

    def dot(self, vectors: Tensor) -> Tensor:
        """G V^T."""
        total = torch.zeros(len(self._x), len(vectors), device=self._x.device)
        for rows in self._rows():
            total += rows.dot(vectors)
        return total

    def combine(self, weights: Tensor, out: Tensor) -> None:
        """w^T G."""
        for rows in self._rows():
            rows.combine(weights, out)

    def total(self, rows: slice, out: Tensor) -> None:
        """Sum of the rows."""
        for part in self._rows():
            part.total(rows, out)

    def squares(self) -> Tensor:
        """|G|^2."""
        return torch.stack([rows.squares() for rows in self._rows()]).sum(0)

    def weighted(self, weights: Tensor) -> Recomputed:
        """Weighted whenever they are computed."""
        both = weights if self._weights is None else weights * self._weights
        return Recomputed(self._model, self._x, self._y, self._groups, self._slots, self._ready, both)
