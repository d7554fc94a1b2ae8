"""The gradients of many clients' batches at the same parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scapegoat.gradients.perceptron import Perceptron
from scapegoat.gradients.plan import plan_for
from scapegoat.modelling.flat_model import IMAGES_AT_ONCE, FlatModel


def client_gradients(
    model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, sizes: Sequence[int], out: Tensor
) -> list[float]:
    """Write each client's gradient of its mean loss, in training mode, into its row of `out` [clients, d].

    `x` and `y` are the clients' batches one after the other, `sizes` their lengths. Returns each client's loss. Linear
    layers with ReLU are differentiated by hand. Other clients share a forward and backward pass where no layer mixes
    samples or draws random numbers and no convolution makes the activations large; their weight gradients are then
    written straight to their rows.
    """
    perceptron = Perceptron.of(model, x, y)
    if perceptron is not None:
        return perceptron.gradients(vector, x, y, sizes, out)
    model.point_at(vector)
    model.module.train()
    shared = _shared(model, x, y, sizes, out) if _may_share(model) else None
    if shared is not None:
        return shared
    at_once = _at_once(model, x, y)
    batches = zip(torch.split(x, list(sizes)), torch.split(y, list(sizes)), out, strict=True)
    return [model.gradient(vector, client_x, client_y, row, at_once)[1] for client_x, client_y, row in batches]


def _at_once(model: FlatModel, x: Tensor, y: Tensor) -> int | None:
    """How many samples to pass at once: few images, if it is known that no layer mixes samples."""
    if x.dim() != 4 or model.has_statistics:
        return None
    plan = plan_for(model, x, y)
    return IMAGES_AT_ONCE if plan.complete and plan.convolves else None


def _may_share(model: FlatModel) -> bool:
    """No module that keeps statistics, draws random numbers or has activations too large to keep for all clients."""
    modules = list(model.module.modules())
    return not any(
        next(module.buffers(recurse=False), None) is not None
        or isinstance(module, nn.modules.dropout._DropoutNd | nn.Conv1d | nn.Conv2d | nn.Conv3d)
        for module in modules
    )


def _shared(model: FlatModel, x: Tensor, y: Tensor, sizes: Sequence[int], out: Tensor) -> list[float] | None:
    plan = plan_for(model, x, y)
    if not plan.complete:
        return None
    counts = torch.tensor(sizes)
    reading = plan.read(model, x, y, torch.repeat_interleave(1 / counts, counts))
    if reading.rest:
        return None
    reading.totals(list(itertools.accumulate(sizes)), out)
    return [float(part.mean()) for part in torch.split(reading.losses, list(sizes))]
