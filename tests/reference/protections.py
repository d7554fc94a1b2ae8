"""Protections the obvious way: PyTorch's own optimizers for decay, one record at a time for what clients do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from scapegoat.modelling.flat_model import FlatModel
from tests.reference.gradients import clipped_sums

OPTIMIZERS = {
    ("sgd", False): lambda p, lr, rate: torch.optim.SGD(p, lr=lr, weight_decay=rate),
    ("momentum", False): lambda p, lr, rate: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=rate),
    ("adam", False): lambda p, lr, rate: torch.optim.Adam(p, lr=lr, weight_decay=rate),
    ("adam", True): lambda p, lr, rate: torch.optim.AdamW(p, lr=lr, weight_decay=rate),
}


def decayed(
    start: Tensor,
    updates: Sequence[Tensor],
    optimizer: str,
    lr: float,
    rate: float,
    decoupled: bool,
    cooled_to: float = 1.0,
) -> Tensor:
    """The parameters after steps along these updates, each with weight decay; the rate is annealed to a share of it."""
    parameter = torch.nn.Parameter(start.clone())
    stepper = OPTIMIZERS[optimizer, decoupled]([parameter], lr, rate)
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(stepper, T_max=len(updates), eta_min=cooled_to * lr)
    for update in updates:
        parameter.grad = update.clone()
        stepper.step()
        annealing.step()
    return parameter.detach()


def floored_gradient(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, floor: float) -> Tensor:
    """The gradient of the mean of max(loss, floor), record by record."""
    total = torch.zeros(model.d)
    for i in range(len(y)):
        gradient, loss = model.gradient(vector, x[i : i + 1], y[i : i + 1])
        if loss >= floor:
            total += gradient
    return total / len(y)


def smoothed_gradient(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, share: float) -> Tensor:
    """The gradient of PyTorch's smoothed cross-entropy."""
    model.point_at(vector)
    model.module.train()
    loss = F.cross_entropy(model.module(x), y, label_smoothing=share)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, model.parameters)])


def mixed_gradient(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, share: float, other: Tensor) -> Tensor:
    """The gradient of share · loss(mixed input, own label) + (1 - share) · loss(mixed input, the other's label)."""
    model.point_at(vector)
    model.module.train()
    logits = model.module(share * x + (1 - share) * x[other])
    loss = share * F.cross_entropy(logits, y) + (1 - share) * F.cross_entropy(logits, y[other])
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, model.parameters)])


def clipped_mean(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, clip: float, expected: int) -> Tensor:
    """The sum of clipped gradients over the expected batch size: DP-SGD without its noise."""
    return (clipped_sums(model, vector, x, y, [len(y)], clip)[0][0] / expected).float()
