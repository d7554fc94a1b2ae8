"""Per-sample gradients the obvious way: one sample, one forward pass, one backward pass."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scapegoat.models.base import FlatModel


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
