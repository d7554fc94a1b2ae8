"""The clients' gradients of linear layers with ReLU between them, by hand: the model that tabular audits train.

Autograd would hold all clients' activations at once. Here they lie in the rows where the last clients' gradients will
be written; those clients pass later, and need no more memory than one update.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scapegoat.devices import Number, later
from scapegoat.gradients.layer_gradients import Slot
from scapegoat.kernels.routes import Routes
from scapegoat.kernels.sparse_products import SparseRows, facts
from scapegoat.modelling.flat_model import FlatModel
from scapegoat.tasks import TaskSpec

LITTLE = 100_000
"""Floats that activations may take whatever the size of the model (0.4 MB)."""


@dataclass(frozen=True)
class _Layer:
    weight: Slot
    bias: Slot | None


@dataclass(frozen=True)
class Perceptron:
    """Where the weights of a perceptron lie in its flat vector, layer by layer."""

    layers: tuple[_Layer, ...]
    d: int
    task: TaskSpec
    routes: Routes

    @classmethod
    def of(cls, model: FlatModel, x: Tensor, y: Tensor) -> Perceptron | None:
        """The model as a perceptron, or None if it is anything else or these records are not what it takes."""
        flattens, linear = _layers(model.module)
        if not linear or x.dtype != torch.float32 or model.precision != "float32" or not model.task.hard(y):
            return None
        if (x.dim() != 2 and not flattens) or x.flatten(1).shape[1] != linear[0].in_features:
            return None
        own = [p for layer in linear for p in (layer.weight, layer.bias) if p is not None]
        if [id(p) for p in own] != [id(p) for p in model.parameters] or any(p._backward_hooks for p in own):
            return None  # something is frozen, shared, watched or not as usual
        layers = []
        start = 0
        for layer in linear:
            weight = Slot(start, tuple(layer.weight.shape))
            start += weight.size
            bias = None if layer.bias is None else Slot(start, tuple(layer.bias.shape))
            start += 0 if bias is None else bias.size
            layers.append(_Layer(weight, bias))
        return cls(tuple(layers), model.d, model.task, model.routes)

    def gradients(self, vector: Tensor, x: Tensor, y: Tensor, sizes: Sequence[int], out: Tensor) -> list[Number]:
        """Write each client's gradient of its mean loss into its row of `out`; returns each client's loss."""
        x = x.flatten(1)
        dense = self.routes.records == self.routes.weights == "dense"
        sparse = None if dense else facts(x).sparse
        starts = [0, *itertools.accumulate(sizes)]
        losses: list[Number] = []
        while len(losses) < len(sizes):
            first = len(losses)
            last = self._together(sizes, first, out.is_contiguous())
            here = slice(starts[first], starts[last])
            ends = [end - starts[first] for end in starts[first + 1 : last + 1]]
            rows = None if sparse is None else sparse.part(here)
            memory = _Memory(out[last:].view(-1) if out.is_contiguous() else out[:0])
            losses += self._pass(vector, x[here], rows, y[here], ends, out[first:last], memory)
        return losses

    def _together(self, sizes: Sequence[int], first: int, contiguous: bool) -> int:
        """The client before which a pass ends: its activations fit where later gradients will be written, or else need
        no more than one update."""
        each, room = self._floats(), max(self.d, self.routes.room or LITTLE)
        for last in range(len(sizes) - 1, first, -1) if contiguous else ():
            if each * sum(sizes[first:last]) <= (len(sizes) - last) * self.d:
                break
        else:
            last = first
        taken, alone = 0, first
        while alone < len(sizes) and (alone == first or each * (taken + sizes[alone]) <= room):
            taken, alone = taken + sizes[alone], alone + 1
        return max(last, alone)

    def _floats(self) -> int:
        """Floats per sample: the outputs of every layer but the last, and the gradients of the largest."""
        widths = [layer.weight.shape[0] for layer in self.layers[:-1]] or [0]
        return sum(widths) + max(widths) + 2 * self.layers[-1].weight.shape[0]

    def _pass(
        self,
        vector: Tensor,
        x: Tensor,
        sparse: SparseRows | None,
        y: Tensor,
        ends: list[int],
        out: Tensor,
        memory: _Memory,
    ) -> list[Number]:
        inputs = [x]
        for layer in self.layers:
            weight = layer.weight.of(vector)
            output = memory.take(len(x), len(weight))
            bias = vector.new_zeros(()) if layer.bias is None else layer.bias.of(vector)
            if len(inputs) == 1 and sparse is not None:
                sparse.times(x, weight, out=output, route=self.routes.records).add_(bias)
            else:
                torch.addmm(bias, inputs[-1], weight.T, out=output)
            inputs.append(output.relu_() if layer is not self.layers[-1] else output)
        ranges = list(itertools.pairwise((0, *ends)))
        logits = inputs.pop()
        losses, delta = self.task.at_outputs(logits, y)
        for start, end in ranges:
            delta[start:end] /= end - start
        spare = memory.take(len(x), max((a.shape[1] for a in inputs[1:]), default=0)).view(-1)
        while inputs:
            a = inputs.pop()
            layer = self.layers[len(inputs)]
            if not inputs and sparse is not None:
                weights = [layer.weight.of(row) for row in out]
                sparse.weight_gradients(a, delta, ends, weights, self.routes.weights)
            else:
                for row, (start, end) in zip(out, ranges, strict=True):
                    torch.mm(delta[start:end].T, a[start:end], out=layer.weight.of(row))
            if layer.bias is not None:
                for row, (start, end) in zip(out, ranges, strict=True):
                    torch.sum(delta[start:end], 0, out=layer.bias.of(row))
            if inputs:
                # Back through the layer and the ReLU before it; then nobody reads what that one put out any more.
                grads = torch.mm(delta, layer.weight.of(vector), out=spare[: a.numel()].view(a.shape))
                torch.ops.aten.threshold_backward.grad_input(grads, a, 0, grad_input=a)
                delta = a
        return [later(losses[start:end].mean()) for start, end in ranges]


class _Memory:
    """Floats that nobody needs yet, given out piece by piece; when they are used up, fresh ones."""

    def __init__(self, floats: Tensor) -> None:
        self._floats = floats

    def take(self, rows: int, columns: int) -> Tensor:
        """Room for a matrix."""
        size = rows * columns
        if size > len(self._floats):
            return torch.empty(rows, columns, device=self._floats.device)
        taken, self._floats = self._floats[:size], self._floats[size:]
        return taken.view(rows, columns)


def _layers(module: nn.Module) -> tuple[bool, list[nn.Linear]]:
    """Whether a `Sequential` of [Flatten,] Linear, ReLU, ..., Linear that nobody watches begins with Flatten, and its
    linear layers; no layers if it is anything else."""
    if type(module) is not nn.Sequential or any(_EVERYWHERE) or any(_watched(m) for m in (module, *module)):
        return False, []
    parts = list(module)  # a layer that comes twice is there twice
    flattens = bool(parts) and type(parts[0]) is nn.Flatten and (parts[0].start_dim, parts[0].end_dim) == (1, -1)
    if flattens:
        parts = parts[1:]
    wanted = [nn.Linear if i % 2 == 0 else nn.ReLU for i in range(len(parts))]
    if len(parts) % 2 == 0 or [type(part) for part in parts] != wanted:
        return flattens, []
    return flattens, [part for part in parts if isinstance(part, nn.Linear)]


_EVERYWHERE = (
    torch.nn.modules.module._global_forward_hooks,
    torch.nn.modules.module._global_forward_pre_hooks,
    torch.nn.modules.module._global_backward_hooks,
    torch.nn.modules.module._global_backward_pre_hooks,
)
"""Hooks on all modules."""


def _watched(module: nn.Module) -> bool:
    """Whether it has hooks or a `forward` of its own: then its calls are not ours to leave out."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)
