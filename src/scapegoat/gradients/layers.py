"""From a layer's recorded calls to its piece of the per-sample gradients; one function per kind of layer.

A layer that is not here, or that is used in a way its calls do not tell, is differentiated sample by sample
(`scapegoat.gradients.direct`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scapegoat.gradients.layer_gradients import LinearGradients, Lookup, Piece, Positions, SampleRows, Slot
from scapegoat.gradients.recording import Call

Slots = Mapping[str, Slot]
"""A layer's trainable parameters by their name in the layer; a frozen one is missing."""

MakePiece = Callable[[nn.Module, list[Call], Slots], Piece]

_MAKERS: dict[type[nn.Module], tuple[MakePiece, Callable[[Any], bool]]] = {}


def _layer(
    *kinds: type[nn.Module], when: Callable[[Any], bool] = lambda module: True
) -> Callable[[MakePiece], MakePiece]:
    def add(make: MakePiece) -> MakePiece:
        for kind in kinds:
            _MAKERS[kind] = (make, when)
        return make

    return add


def maker(module: nn.Module) -> MakePiece | None:
    """How to read this layer's per-sample gradients from its calls, or None if that is not known."""
    known = _MAKERS.get(type(module))
    if known is None or not known[1](module):
        return None
    return known[0]


def _rows(slots: Slots, **gradients: Tensor) -> SampleRows:
    return SampleRows([(slots[name], rows.flatten(1)) for name, rows in gradients.items() if name in slots])


@_layer(nn.Linear)
def linear(module: nn.Module, calls: list[Call], slots: Slots) -> Piece:
    """LinearGradients products; several calls or positions of one sample are summed."""
    if len(calls) == 1 and calls[0].inputs.dim() == 2:
        call = calls[0]
        return LinearGradients(call.inputs, call.grads, slots.get("weight"), slots.get("bias"), call.facts, call.route)
    samples = len(calls[0].inputs)
    a = torch.cat([call.inputs.reshape(samples, -1, call.inputs.shape[-1]) for call in calls], 1)
    delta = torch.cat([call.grads.reshape(samples, -1, call.grads.shape[-1]) for call in calls], 1)
    return Positions(a, delta, slots.get("weight"), slots.get("bias"))


@_layer(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(module: nn.Module, calls: list[Call], slots: Slots) -> Piece:
    """Written out for this one layer: no way around its size is cheaper once positions outnumber channels."""
    assert isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    gradients = {}
    if "weight" in slots:
        gradients["weight"] = _summed([_conv_weight_rows(module, call) for call in calls])
    if "bias" in slots:
        gradients["bias"] = _summed([_channel_sum(call.grads) for call in calls])
    return _rows(slots, **gradients)


def _summed(rows: list[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.stack(rows).sum(0)


def _conv_weight_rows(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, call: Call) -> Tensor:
    """The weight gradient of each sample, [s, p]: the samples become groups of one grouped convolution.

    A convolution of [1, s * c, ...] in s groups never mixes samples, and the backward pass of its weight is the fastest
    per-sample product there is on a CPU (2 to 5 times as fast as unfolded patches and a batched matrix product).
    """
    x, delta = call.inputs, call.grads
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x, padding = F.pad(x, module._reversed_padding_repeated_twice, mode=mode), [0] * len(module.kernel_size)
    else:
        padding = list(module.padding)
    samples = len(x)
    # Only its shape is asked for: one number that stands for all of them spares a copy of the weight per sample.
    outputs, *kernel = module.weight.shape
    weight = module.weight.detach().new_zeros(()).expand(samples * outputs, *kernel)
    found = torch.ops.aten.convolution_backward(
        delta.reshape(1, -1, *delta.shape[2:]),
        x.reshape(1, -1, *x.shape[2:]),
        weight,
        None,
        list(module.stride),
        padding,
        list(module.dilation),
        False,
        [0] * len(module.kernel_size),
        samples * module.groups,
        [False, True, False],
    )[1]
    return found.reshape(samples, -1)  # type: ignore[no-any-return]


@_layer(nn.LayerNorm)
def layer_norm(module: nn.Module, calls: list[Call], slots: Slots) -> Piece:
    """Weight: sum over positions of Delta times the normalised input; bias: sum of Delta."""
    assert isinstance(module, nn.LayerNorm)
    shape = module.normalized_shape

    def summed(rows: Tensor) -> Tensor:
        return rows.reshape(len(rows), -1, *shape).sum(1)

    return _affine(calls, slots, lambda x: F.layer_norm(x, shape, eps=module.eps), summed)


def _channel_sum(rows: Tensor) -> Tensor:
    return rows.flatten(2).sum(2) if rows.dim() > 2 else rows


@_layer(nn.GroupNorm)
def group_norm(module: nn.Module, calls: list[Call], slots: Slots) -> Piece:
    """Weight: sum over positions of Delta times the normalised input; bias: sum of Delta."""
    assert isinstance(module, nn.GroupNorm)
    return _affine(calls, slots, lambda x: F.group_norm(x, module.num_groups, eps=module.eps), _channel_sum)


@_layer(nn.InstanceNorm1d, nn.InstanceNorm2d, when=lambda module: not module.track_running_stats)
def instance_norm(module: nn.Module, calls: list[Call], slots: Slots) -> Piece:
    """As GroupNorm with a group a channel."""
    assert isinstance(module, nn.InstanceNorm1d | nn.InstanceNorm2d)
    return _affine(calls, slots, lambda x: F.instance_norm(x, eps=module.eps), _channel_sum)


@_layer(
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    when=lambda module: not module.training and module.running_mean is not None,
)
def batch_norm(module: nn.Module, calls: list[Call], slots: Slots) -> Piece:
    """With the running statistics; in training mode samples mix and have no gradient of their own."""
    assert isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    mean, variance = module.running_mean, module.running_var
    return _affine(calls, slots, lambda x: F.batch_norm(x, mean, variance, eps=module.eps), _channel_sum)


def _affine(
    calls: list[Call], slots: Slots, normalise: Callable[[Tensor], Tensor], summed: Callable[[Tensor], Tensor]
) -> Piece:
    weight = _summed([summed(normalise(call.inputs).mul_(call.grads)) for call in calls])
    bias = _summed([summed(call.grads) for call in calls])
    return _rows(slots, weight=weight, bias=bias)


@_layer(nn.Embedding, when=lambda module: module.max_norm is None and not module.scale_grad_by_freq)
def embedding(module: nn.Module, calls: list[Call], slots: Slots) -> Piece:
    """Rows of the table that a sample's tokens name; the padding row has no gradient."""
    assert isinstance(module, nn.Embedding)
    samples = len(calls[0].inputs)
    tokens = torch.cat([call.inputs.reshape(samples, -1) for call in calls], 1)
    delta = torch.cat([call.grads.reshape(samples, -1, module.embedding_dim) for call in calls], 1)
    if module.padding_idx is not None:
        delta = delta.masked_fill((tokens == module.padding_idx).unsqueeze(2), 0.0)
    return Lookup(tokens, delta, slots["weight"])
