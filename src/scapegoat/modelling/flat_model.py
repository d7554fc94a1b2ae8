"""Models as functions of one flat parameter vector."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from scapegoat.errors import InputError
from scapegoat.extending.explained import explained
from scapegoat.kernels.group_norm import accurate
from scapegoat.kernels.sparse_products import SparseRows, facts, linear, replaced
from scapegoat.modelling.checks import check
from scapegoat.modelling.seeding import seeded
from scapegoat.modelling.task import CLASSES, Task
from scapegoat.registry import Component, Registry
from scapegoat.tasks import TaskSpec

EVALUATED_AT_ONCE = 320
"""Records that pass through a model together when it is only evaluated: their activations are no longer than the
parameters of the smallest model that is common, 0.3 million."""

IMAGES_EVALUATED_AT_ONCE = 64
"""The same for images: their activations stay in the cache (1.2 times as fast as 300 at once)."""

IMAGES_AT_ONCE = 32
"""Images that pass together when a gradient is needed, where layers keep samples apart."""


class ModelSpec(Component):
    """Options of a model; `build` makes the module for an input shape (without the batch) and a number of classes."""

    in_process: ClassVar[bool] = False
    """Whether it lives in this process only, where worker processes cannot reach it."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.name

    @property
    def unpinned(self) -> bool:
        """Whether it is a user's own, of which a run has yet to note what it is."""
        return False

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """A freshly initialised module that maps [batch, *input_shape] to [batch, classes] logits."""
        raise NotImplementedError

    def answers(self, input_shape: tuple[int, ...], classes: int, input_dtype: torch.dtype) -> tuple[int, ...] | None:
        """For a user's own: the shape of what it answers to two records; None where that is as it is told."""
        return None

    def pinned(self, task: Task) -> Self:
        """The model with its content noted, if it is a user's own."""
        return self

    def verify(self, task: Task) -> None:
        """Refuse a user's own model if its content is not what was noted."""


Teaching = Callable[[Tensor], Tensor]
"""Which samples of a batch have a gradient, by their losses [n]."""


class FlatModel:
    """A module whose trainable parameters are views of one flat float32 vector.

    `point_at(vector)` re-points the parameters without copying; everything else takes the vector as an argument. The
    buffers (BatchNorm's running statistics) stay inside the module and can be read and set as one flat vector.
    """

    def __init__(
        self,
        module: nn.Module,
        input_shape: tuple[int, ...],
        classes: int,
        input_dtype: torch.dtype = torch.float32,
        task: TaskSpec = CLASSES,
    ) -> None:
        """`classes` is the number of outputs, whatever `task` makes of them."""
        self.module = module
        self.input_shape = tuple(input_shape)
        self.input_dtype = input_dtype
        self.classes = classes
        self.task = task
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise InputError("the model has no trainable parameters")
        self.parameters: list[nn.Parameter] = [p for _, p in named]
        for name, parameter in named:
            if not parameter.dtype.is_floating_point:
                raise InputError(f"parameter {name} is {parameter.dtype}; scapegoat trains floating-point parameters")
        module.float()
        self.layout: tuple[tuple[str, tuple[int, ...]], ...] = tuple((n, tuple(p.shape)) for n, p in named)
        self.sizes = [p.numel() for p in self.parameters]
        self.d = sum(self.sizes)
        self._initial: Tensor | None = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.point_at(self._initial)
        self._buffers = [b for _, b in module.named_buffers() if b.dtype.is_floating_point]
        modules = list(module.modules())
        self.has_statistics = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in modules)
        self._linear = [m for m in modules if isinstance(m, nn.Linear)]
        self._groups = [m for m in modules if isinstance(m, nn.GroupNorm)]
        self._channels_last = len(self.input_shape) == 3 and _takes_channels_last(self)

    def initial(self) -> Tensor:
        """The parameters that the module was built with."""
        return self._held().clone()

    def take_initial(self) -> Tensor:
        """The initial parameters without a copy; the model forgets them, which spares a vector."""
        vector = self._held()
        self._initial = None
        return vector

    def _held(self) -> Tensor:
        if self._initial is None:
            raise RuntimeError("the initial parameters were taken")
        return self._initial

    def point_at(self, vector: Tensor) -> None:
        """Make the module's parameters views of `vector`."""
        offset = 0
        for parameter, size in zip(self.parameters, self.sizes, strict=True):
            parameter.data = vector[offset : offset + size].view(parameter.shape)
            offset += size

    def buffers(self) -> Tensor:
        """All floating-point buffers as one vector (empty for most models)."""
        return torch.cat([b.reshape(-1) for b in self._buffers]) if self._buffers else torch.empty(0)

    def set_buffers(self, vector: Tensor) -> None:
        """Write the floating-point buffers back."""
        offset = 0
        for buffer in self._buffers:
            buffer.copy_(vector[offset : offset + buffer.numel()].view(buffer.shape))
            offset += buffer.numel()

    def prepare(self, x: Tensor) -> Tensor:
        """Inputs in the memory layout that is fastest in the mode the module is in.

        Convolutions are faster with the channels last; GroupNorm's backward pass is too slow for that to pay.
        """
        pays = self._channels_last and not (self._groups and self.module.training)
        return x.contiguous(memory_format=torch.channels_last) if pays else x

    @torch.no_grad()
    def logits(self, vector: Tensor, x: Tensor) -> Tensor:
        """Logits in evaluation mode. Give the same tensor every time: what is known of it is remembered."""
        self.point_at(vector)
        self.module.eval()
        if not self.input_dtype.is_floating_point:
            x = x.to(self.input_dtype)  # rules that probe with noise draw floats, whatever the model takes
        batch = EVALUATED_AT_ONCE if x.dim() == 2 else IMAGES_EVALUATED_AT_ONCE
        # What is known of the parts of a large set is forgotten: kept, it would take up to half of the set's memory.
        parts = [self._evaluated(part) for part in (torch.split(x, batch) if len(x) > batch else [x])]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _evaluated(self, x: Tensor) -> Tensor:
        sparse = facts(x).sparse if x.dim() == 2 else None
        with ExitStack() as stack:
            if sparse is not None:
                for layer in self._linear:
                    stack.enter_context(replaced(layer, _looking_up(layer, x, sparse)))
            if x.dim() == 4:
                for norm in self._groups:
                    stack.enter_context(replaced(norm, accurate(norm)))
            return self.module(self.prepare(x))  # type: ignore[no-any-return]

    def gradient(
        self,
        vector: Tensor,
        x: Tensor,
        y: Tensor,
        out: Tensor | None = None,
        at_once: int | None = None,
        teaching: Teaching | None = None,
    ) -> tuple[Tensor, float]:
        """Gradient [d] of the mean loss in training mode, and the loss.

        `y` are labels, or what `task.soft` made of them. With `at_once` the samples pass a few at a time, which is
        the same only where no layer mixes samples. With `teaching` the samples that it does not choose by their losses
        have no gradient; the loss is still that of all.
        """
        self.point_at(vector)
        self.module.train()
        out = torch.empty(self.d) if out is None else out
        size = at_once or max(len(y), 1)
        loss = 0.0
        for start in range(0, max(len(y), 1), size):
            part = slice(start, start + size)
            share = len(y[part]) / len(y) if len(y) else 1.0
            logits = self.module(self.prepare(x[part]))
            if teaching is None:
                part_loss = taught = self.task.losses(logits, y[part], "mean") * share
            else:
                losses = self.task.losses(logits, y[part])
                part_loss = losses.detach().mean() * share
                taught = torch.where(teaching(losses.detach()), losses, 0.0).mean() * share
            grads = torch.autograd.grad(taught, self.parameters, allow_unused=True)
            self._write(grads, out, add=start > 0)
            loss += float(part_loss.detach())
        return out, loss

    def _write(self, grads: tuple[Tensor | None, ...], out: Tensor, add: bool) -> None:
        offset = 0
        for grad, size in zip(grads, self.sizes, strict=True):
            here = out[offset : offset + size]
            if grad is not None:
                view = here.view(grad.shape)
                view.add_(grad) if add else view.copy_(grad)
            elif not add:
                here.zero_()
            offset += size


@torch.no_grad()
def _takes_channels_last(model: FlatModel) -> bool:
    """Whether the module works in that memory layout: `x.view(len(x), -1)` after a convolution does not."""
    training = model.module.training
    model.module.eval()
    images = torch.zeros(2, *model.input_shape, dtype=model.input_dtype)
    try:
        model.module(images.contiguous(memory_format=torch.channels_last))
    except Exception:
        return False
    finally:
        model.module.train(training)
    return True


def _looking_up(layer: nn.Linear, x: Tensor, sparse: SparseRows) -> Callable[[Tensor], Tensor]:
    """The layer's forward, save that the records themselves are looked up."""
    ordinary = layer.forward
    return lambda input: linear(layer, x, sparse) if input is x else ordinary(input)  # noqa: A006


def build(
    spec: ModelSpec,
    input_shape: tuple[int, ...],
    classes: int,
    seed: int,
    input_dtype: torch.dtype = torch.float32,
    objective: TaskSpec = CLASSES,
) -> FlatModel:
    """The model of a spec with its initial parameters drawn from `seed`; `classes` is the number of its outputs."""
    task = Task(input_shape, classes, input_dtype, objective)
    spec.verify(task)
    return FlatModel(make_module(spec, task, seed), input_shape, classes, input_dtype, objective)


def make_module(spec: ModelSpec, task: Task, seed: int) -> nn.Module:
    """The module of a spec, drawn from `seed`; refuses one that answers otherwise than asked, or cannot be trained."""
    with seeded(seed):
        try:
            module = spec.build(task.input_shape, task.classes)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"model {spec.label}: building it raised {explained(error)}") from error
        if not isinstance(module, nn.Module):
            raise InputError(f"model {spec.label}: the factory returned {type(module).__name__}, not a torch.nn.Module")
        # Lazy layers draw their parameters at the first batch, so this too happens under the seed.
        check(module, spec.label, task)
    return module


def _expand(name: str) -> tuple[str, dict[str, Any]] | None:
    return ("import", {"factory": name}) if ":" in name else None


registry: Registry[ModelSpec] = Registry("model", ModelSpec, "scapegoat.models", expand=_expand)
register = registry.register
get = registry.get
