"""Per-sample gradients by differentiating each sample, for parameters whose layer is not understood."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from scapegoat.gradients.pieces import BLOCK_FLOATS, Rows, Slot
from scapegoat.models.base import FlatModel


def sample_rows(model: FlatModel, x: Tensor, y: Tensor, indices: Sequence[int], slots: Sequence[Slot]) -> Rows:
    """The gradients of the parameters with these indices, written out: `vmap(grad)` in chunks, else one by one."""
    sizes = [slots[i].size for i in indices]
    rows = torch.empty(len(x), sum(sizes))
    parts = list(zip([slots[i] for i in indices], torch.split(rows, sizes, dim=1), strict=True))
    names = [model.layout[i][0] for i in indices]
    values = {name: model.parameters[i].detach() for name, i in zip(names, indices, strict=True)}

    def loss(parameters: dict[str, Tensor], sample: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model.module, parameters, (sample.unsqueeze(0),)), label.unsqueeze(0))

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    chunk = max(1, min(32, BLOCK_FLOATS // max(1, sum(sizes))))
    try:
        for start in range(0, len(x), chunk):
            here = slice(start, start + chunk)
            found = per_sample(values, x[here], y[here])
            for name, (_, part) in zip(names, parts, strict=True):
                part[here] = found[name].flatten(1)
    except (RuntimeError, NotImplementedError, ValueError):
        # Not every operator has a batching rule (LSTM has none), and data-dependent Python cannot be batched.
        _one_by_one(model, x, y, indices, [part for _, part in parts])
    return Rows(parts)


def _one_by_one(model: FlatModel, x: Tensor, y: Tensor, indices: Sequence[int], parts: Sequence[Tensor]) -> None:
    wanted = [model.parameters[i] for i in indices]
    for s in range(len(x)):
        with torch.enable_grad():
            loss = F.cross_entropy(model.module(x[s : s + 1]), y[s : s + 1])
        for part, found in zip(parts, torch.autograd.grad(loss, wanted, allow_unused=True), strict=True):
            part[s] = 0.0 if found is None else found.reshape(-1)
