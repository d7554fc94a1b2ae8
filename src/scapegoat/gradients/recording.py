"""One forward and backward pass over a batch that remembers, layer by layer, what per-sample gradients are made of.

For a layer called on inputs A with gradients Delta of the loss with respect to its outputs, the gradient of each sample's
own loss is a function of its rows of A and Delta alone. Both come from a single pass over the whole batch, because the
summed loss has the same Delta as every sample's own loss. The pass asks autograd for Delta only, so that no weight
gradient is computed which nobody wants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from scapegoat.models.base import FlatModel


@dataclass(frozen=True)
class Call:
    """One call of a layer: its input and the gradient of the loss with respect to its output."""

    inputs: Tensor
    grads: Tensor


@dataclass(frozen=True)
class Recording:
    """The calls of every watched layer, each sample's loss, and how often each parameter entered the computation."""

    calls: dict[nn.Module, list[Call]]
    losses: Tensor
    uses: dict[int, int]


def record(
    model: FlatModel,
    x: Tensor,
    y: Tensor,
    modules: Iterable[nn.Module],
    weights: Tensor | None = None,
    count_uses: bool = True,
) -> Recording:
    """Run the module, in the mode it is in, on `x`; backward from the sum of the cross-entropies times `weights` [s]."""
    seen: list[tuple[nn.Module, Tensor, GradientEdge, int]] = []

    def watch(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
        source = args[0] if args else kwargs.get("input")
        if isinstance(source, Tensor) and isinstance(output, Tensor) and output.requires_grad:
            seen.append((module, source.detach(), get_gradient_edge(output), source._version))

    handles = [module.register_forward_hook(watch, with_kwargs=True) for module in modules]
    try:
        with torch.enable_grad():
            logits = model.module(model.prepare(x))
            losses = F.cross_entropy(logits, y, reduction="none")
            total = losses.sum() if weights is None else losses @ weights
    finally:
        for handle in handles:
            handle.remove()
    uses = parameter_uses(total) if count_uses else {}
    calls: dict[nn.Module, list[Call]] = {}
    if seen:
        grads = torch.autograd.grad(total, [edge for _, _, edge, _ in seen], allow_unused=True)
        for (module, source, _, version), grad in zip(seen, grads, strict=True):
            if grad is None:
                continue
            if source._version != version:
                raise RuntimeError("a layer's input was changed in place after the layer had read it")
            calls.setdefault(module, []).append(Call(source, grad))
    return Recording(calls, losses.detach(), uses)


def parameter_uses(output: Tensor) -> dict[int, int]:
    """How many operations under `output` read each parameter, by id.

    A layer that is called once reads its weight once. A weight that is read more often than its layer was called is also
    used by somebody else (tied weights, `F.linear(x, layer.weight)`), and the layer's calls do not tell its gradient.
    """
    counts: dict[int, int] = {}
    root = output.grad_fn
    if root is None:
        return counts
    visited: set[Node] = {root}
    queue: list[Node] = [root]
    while queue:
        for successor, _ in queue.pop().next_functions:
            if successor is None:
                continue
            variable = getattr(successor, "variable", None)
            if variable is not None:
                counts[id(variable)] = counts.get(id(variable), 0) + 1
            elif successor not in visited:
                visited.add(successor)
                queue.append(successor)
    return counts
