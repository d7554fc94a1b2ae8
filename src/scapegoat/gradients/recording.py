"""One forward and backward pass over a batch that remembers, layer by layer, what per-sample gradients are made of.

For a layer called on inputs A with gradients Delta of the loss with respect to its outputs, the gradient of a sample's
own loss is a function of its rows of A and Delta alone. Both come from a single pass over the whole batch, because the
summed loss has the same Delta as every sample's own loss. The pass asks autograd for Delta only, so that no weight
gradient is computed which nobody wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from scapegoat.kernels.routes import Product
from scapegoat.kernels.sparse_products import InputFacts, facts, linear, replaced
from scapegoat.modelling.flat_model import FlatModel


@dataclass(frozen=True)
class Call:
    """One call of a layer: its input and the gradient of the loss with respect to its output.

    `facts` are known of an input that is data, not the output of another layer; `route` is how it is multiplied.
    """

    inputs: Tensor
    grads: Tensor
    facts: InputFacts | None = None
    route: Product | None = None


@dataclass(frozen=True)
class Recording:
    """The calls of every watched layer, each sample's loss, and how often each parameter entered the computation."""

    calls: dict[nn.Module, list[Call]]
    losses: Tensor
    uses: dict[int, int]


@dataclass
class _Watch:
    """What the hooks of a forward pass have seen; `route` is how the records are multiplied.

    Without `asks` nobody needs to know anything of the records.
    """

    route: Product | None
    asks: bool
    seen: list[tuple[nn.Module, Tensor, int, GradientEdge, InputFacts | None]] = field(default_factory=list)
    stood_in: dict[int, int] = field(default_factory=dict)
    _facts: InputFacts | None = None

    def hook(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """After a layer's forward: keep its input and the place in the graph where Delta will pass."""
        source = args[0] if args else kwargs.get("input")
        known, self._facts = self._facts, None
        if isinstance(source, Tensor) and isinstance(output, Tensor) and output.requires_grad:
            # The edge, not the output: a ReLU that works in place may overwrite what the layer returned.
            edge = get_gradient_edge(output)
            self.seen.append((module, source.detach(), source._version, edge, known))

    def forward_of(self, layer: nn.Linear) -> Callable[[Tensor], Tensor]:
        """The layer's forward pass, but inputs that are mostly zeros are looked up."""
        ordinary = layer.forward

        def forward(input: Tensor) -> Tensor:  # noqa: A002  (the name that nn.Linear gives it)
            self._facts = facts(input) if self.asks and not input.requires_grad else None
            if self._facts is None or self._facts.sparse is None or self.route == "dense":
                return ordinary(input)
            output = linear(layer, input, self._facts.sparse, self.route)
            for parameter in layer.parameters():
                self.stood_in[id(parameter)] = self.stood_in.get(id(parameter), 0) + 1
            # Not a leaf of the graph, which a ReLU that works in place could not change.
            return output.add_(torch.zeros((), requires_grad=True, device=output.device))

        return forward


def record(
    model: FlatModel, x: Tensor, y: Tensor, layers: Iterable[nn.Module], weights: Tensor | None = None
) -> Recording:
    """Run the module, in the mode it is in, and backward from the sum of the losses, times `weights` [s]."""
    training, routes = model.module.training, model.routes
    now, later = (routes.records, routes.weights) if training else (routes.crafting, routes.crafting)
    watch = _Watch(now, asks=not (training and now == later == "dense"))
    with ExitStack() as stack, torch.enable_grad():
        for layer in layers:
            handle = layer.register_forward_hook(watch.hook, with_kwargs=True)
            stack.callback(handle.remove)
            if isinstance(layer, nn.Linear) and model.precision == "float32":
                stack.enter_context(replaced(layer, watch.forward_of(layer)))
        losses = model.task.losses(model.outputs(x), y)
        total = losses.sum() if weights is None else losses @ weights
    uses = parameter_uses(total)
    for parameter, count in watch.stood_in.items():
        uses[parameter] = uses.get(parameter, 0) + count
    calls: dict[nn.Module, list[Call]] = {}
    if watch.seen:
        grads: tuple[Tensor | None, ...] = torch.autograd.grad(total, [s[3] for s in watch.seen], allow_unused=True)
        for (layer, source, version, _, known), grad in zip(watch.seen, grads, strict=True):
            if grad is None:
                continue
            if source._version != version:
                raise RuntimeError("a layer's input was changed in place after the layer had read it")
            calls.setdefault(layer, []).append(Call(_wide(source), _wide(grad), known, later))
    return Recording(calls, losses.detach(), uses)


def _wide(tensor: Tensor) -> Tensor:
    """What a pass in fewer bits left behind, in float32: products of gradients are not rounded again."""
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def parameter_uses(output: Tensor) -> dict[int, int]:
    """How many operations under `output` read each parameter, by id.

    A layer that is called once reads its weight once. A weight that is read more often than its layer was called is
    also used elsewhere (tied weights, `F.linear(x, layer.weight)`), and the layer's calls do not tell its gradient.
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
