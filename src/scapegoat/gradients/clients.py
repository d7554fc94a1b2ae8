"""The gradients of many clients' batches at the same parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scapegoat.devices import Number, later
from scapegoat.gradients.layer_map import layer_map_for
from scapegoat.gradients.perceptron import Perceptron
from scapegoat.modelling.flat_model import IMAGES_AT_ONCE, FlatModel


def client_gradients(
    model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, sizes: Sequence[int], out: Tensor
) -> list[Number]:
    """Write each client's gradient of its mean loss, in training mode, into its row of `out` [clients, d].

    `x` and `y` are the clients' batches one after the other, `sizes` their lengths. Returns each client's loss. Linear
    layers with ReLU are differentiated by hand. Other clients share a forward and backward pass where no layer mixes
    samples or draws random numbers and no convolution makes the activations large; their weight gradients are then
    written straight to their rows. The model's routes may leave all of it to autograd.
    """
    alone = model.routes.passes == "autograd"
    perceptron = None if alone else Perceptron.of(model, x, y)
    if perceptron is not None:
        return perceptron.gradients(vector, x, y, sizes, out)
    model.point_at(vector)
    model.module.train()
    shared = _shared(model, x, y, sizes, out) if not alone and _may_share(model) else None
    if shared is not None:
        return shared
    at_once = _at_once(model, x, y)
    batches = zip(torch.split(x, list(sizes)), torch.split(y, list(sizes)), out, strict=True)
    return [model.gradient(vector, client_x, client_y, row, at_once)[1] for client_x, client_y, row in batches]


def _at_once(model: FlatModel, x: Tensor, y: Tensor) -> int | None:
    """How many samples to pass at once: on a processor few images, if it is known that no layer mixes samples."""
    if x.dim() != 4 or model.has_statistics or x.device.type != "cpu":
        return None
    layer_map = layer_map_for(model, x, y)
    return (model.routes.images or IMAGES_AT_ONCE) if layer_map.complete and layer_map.convolves else None


def _may_share(model: FlatModel) -> bool:
    """No module that keeps statistics, draws random numbers or has activations too large to keep for all clients."""
    modules = list(model.module.modules())
    return not any(
        next(module.buffers(recurse=False), None) is not None
        or isinstance(module, nn.modules.dropout._DropoutNd | nn.Conv1d | nn.Conv2d | nn.Conv3d)
        for module in modules
    )


def _shared(model: FlatModel, x: Tensor, y: Tensor, sizes: Sequence[int], out: Tensor) -> list[Number] | None:
    layer_map = layer_map_for(model, x, y)
    if not layer_map.complete:
        return None
    counts = torch.tensor(sizes)
    reading = layer_map.read(model, x, y, torch.repeat_interleave(1 / counts, counts).to(x.device))
    if reading.rest:
        return None
    reading.totals(list(itertools.accumulate(sizes)), out)
    return [later(part.mean()) for part in torch.split(reading.losses, list(sizes))]
