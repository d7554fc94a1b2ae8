"""Per-sample gradients the obvious way: one sample, one forward pass, one backward pass."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from scapegoat.modelling.flat_model import FlatModel


def sample_gradients(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """[samples, d], in evaluation mode."""
    model.point_at(vector)
    model.module.eval()
    rows = []
    for i in range(len(x)):
        loss = F.cross_entropy(model.module(x[i : i + 1]), y[i : i + 1])
        grads = torch.autograd.grad(loss, model.parameters, allow_unused=True)
        rows.append(
            torch.cat(
                [
                    torch.zeros(p.numel()) if g is None else g.reshape(-1)
                    for g, p in zip(grads, model.parameters, strict=True)
                ]
            )
        )
    return torch.stack(rows)


def clipped_sums(
    model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, sizes: Sequence[int], clip: float
) -> tuple[Tensor, list[int]]:
    """Each client's sum of clipped gradients [clients, d] in float64; records shortened.

    In training mode, one record at a time; those without a finite gradient are set aside.
    """
    model.point_at(vector)
    module = copy.deepcopy(model.module).double().train()
    parameters = [p for p in module.parameters() if p.requires_grad]
    out = torch.zeros(len(sizes), model.d, dtype=torch.float64)
    shortened = [0] * len(sizes)
    inputs = x.double() if x.is_floating_point() else x
    i = 0
    for client, size in enumerate(sizes):
        for _ in range(size):
            loss = F.cross_entropy(module(inputs[i : i + 1]), y[i : i + 1])
            grads = torch.autograd.grad(loss, parameters, allow_unused=True)
            flat = [
                torch.zeros(p.numel()).double() if g is None else g.reshape(-1)
                for g, p in zip(grads, parameters, strict=True)
            ]
            gradient = torch.cat(flat)
            i += 1
            if not bool(gradient.isfinite().all()):
                continue
            norm = float(gradient.norm())
            if norm > clip:
                shortened[client] += 1
                gradient = gradient * (clip / norm)
            out[client] += gradient
    return out, shortened
