"""Models as functions of one flat parameter vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from scapegoat.devices import CPU, Number, later, short_of_memory
from scapegoat.errors import InputError
from scapegoat.extending.explained import explained, where
from scapegoat.kernels.group_norm import accurate
from scapegoat.kernels.routes import FIXED, Product, Routes
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

ON_A_DEVICE = 16
"""Times as many on an accelerator, which is idle while it is asked for little."""

IMAGES_AT_ONCE = 32
"""Images that pass together when a gradient is needed, where layers keep samples apart."""


Precision = Literal["float32", "bfloat16"]
"""What passes are computed in."""

_AS_IT_IS = nullcontext()


class ModelSpec(Component):
    """Options of a model; `build` makes the module for an input shape (without the batch) and a number of classes.

    Examples
    --------
    >>> class OneLayer(ModelSpec):
    ...     def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    ...         return nn.Linear(input_shape[0], classes)
    >>> build(OneLayer(), (3,), 2, seed=0).d
    8
    """

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

    def parameters(self, input_shape: tuple[int, ...], classes: int) -> int | None:
        """How many parameters the module will have, where its options tell that before it is built."""
        return None

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
    `routes` are the ways by which its passes are taken.

    Parameters
    ----------
    module: any module that maps [batch, *input_shape] to [batch, classes].
    input_shape, input_dtype: of one record.
    classes: the number of outputs, whatever `task` makes of them.
    task: what the outputs are trained for; classification by default.
    device: where the module and its vectors are.
    precision: that of the passes; parameters and updates stay float32.

    Examples
    --------
    >>> model = FlatModel(nn.Linear(3, 2), (3,), 2)
    >>> gradient, loss = model.gradient(torch.zeros(model.d), torch.ones(4, 3), torch.tensor([0, 1, 0, 0]))
    >>> gradient.shape, round(loss, 3)
    (torch.Size([8]), 0.693)
    """

    def __init__(
        self,
        module: nn.Module,
        input_shape: tuple[int, ...],
        classes: int,
        input_dtype: torch.dtype = torch.float32,
        task: TaskSpec = CLASSES,
        device: torch.device = CPU,
        precision: Precision = "float32",
    ) -> None:
        self.device = device
        self.precision: Precision = precision
        self.module = module = module if device == CPU else module.to(device)
        self.routes: Routes = FIXED
        self.input_shape = tuple(input_shape)
        self.input_dtype = input_dtype
        self.classes = classes
        self.task = task.on(device)
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
        return (
            torch.cat([b.reshape(-1) for b in self._buffers]) if self._buffers else torch.empty(0, device=self.device)
        )

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

    def outputs(self, x: Tensor) -> Tensor:
        """The module's answer, in the mode it is in; float32, whatever the pass is computed in."""
        with self.passing():
            answer: Tensor = self.module(x)
        return answer if self.precision == "float32" else answer.float()

    def passing(self) -> AbstractContextManager[object]:
        """Inside, layers compute in the model's precision; parameters, gradients and statistics stay float32."""
        if self.precision == "float32":
            return _AS_IT_IS
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    @contextmanager
    def exactly(self) -> Iterator[None]:
        """Inside, passes are computed in float32: to find out what layers do."""
        before, self.precision = self.precision, "float32"
        try:
            yield
        finally:
            self.precision = before

    @torch.no_grad()
    def logits(self, vector: Tensor, x: Tensor) -> Tensor:
        """Logits in evaluation mode. Give the same tensor every time: what is known of it is remembered."""
        self.point_at(vector)
        self.module.eval()
        if not self.input_dtype.is_floating_point:
            x = x.to(self.input_dtype)  # rules that probe with noise draw floats, whatever the model takes
        images = self.routes.scored_images or IMAGES_EVALUATED_AT_ONCE
        batch = (EVALUATED_AT_ONCE if x.dim() == 2 else images) * (1 if x.device == CPU else ON_A_DEVICE)
        # What is known of the parts of a large set is forgotten: kept, it would take up to half of the set's memory.
        parts = [self._evaluated(part) for part in (torch.split(x, batch) if len(x) > batch else [x])]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _evaluated(self, x: Tensor) -> Tensor:
        route = self.routes.scoring
        looks_up = x.dim() == 2 and route != "dense" and self.precision == "float32"
        sparse = facts(x).sparse if looks_up else None
        with ExitStack() as stack:
            if sparse is not None:
                for layer in self._linear:
                    stack.enter_context(replaced(layer, _looking_up(layer, x, sparse, route)))
            if x.dim() == 4 and self.precision == "float32":
                for norm in self._groups:
                    stack.enter_context(replaced(norm, accurate(norm)))
            return self.outputs(self.prepare(x))

    def gradient(
        self,
        vector: Tensor,
        x: Tensor,
        y: Tensor,
        out: Tensor | None = None,
        at_once: int | None = None,
        teaching: Teaching | None = None,
    ) -> tuple[Tensor, Number]:
        """Gradient [d] of the mean loss in training mode, and the loss.

        `y` are labels, or what `task.soft` made of them. With `at_once` the samples pass a few at a time, which is
        the same only where no layer mixes samples. With `teaching` the samples that it does not choose by their losses
        have no gradient; the loss is still that of all.
        """
        self.point_at(vector)
        self.module.train()
        out = torch.empty(self.d, device=self.device) if out is None else out
        size = at_once or max(len(y), 1)
        loss: Number = 0.0
        for start in range(0, max(len(y), 1), size):
            part = slice(start, start + size)
            share = len(y[part]) / len(y) if len(y) else 1.0
            logits = self.outputs(self.prepare(x[part]))
            if teaching is None:
                part_loss = taught = self.task.losses(logits, y[part], "mean") * share
            else:
                losses = self.task.losses(logits, y[part])
                part_loss = losses.detach().mean() * share
                taught = torch.where(teaching(losses.detach()), losses, 0.0).mean() * share
            grads = torch.autograd.grad(taught, self.parameters, allow_unused=True)
            self._write(grads, out, add=start > 0)
            loss += later(part_loss.detach())
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
    images = torch.zeros(2, *model.input_shape, dtype=model.input_dtype, device=model.device)
    try:
        model.module(images.contiguous(memory_format=torch.channels_last))
    except Exception:
        return False
    finally:
        model.module.train(training)
    return True


def _looking_up(layer: nn.Linear, x: Tensor, sparse: SparseRows, route: Product | None) -> Callable[[Tensor], Tensor]:
    """The layer's forward pass, but the records themselves are looked up."""
    ordinary = layer.forward
    return lambda input: linear(layer, x, sparse, route) if input is x else ordinary(input)  # noqa: A006


def build(
    spec: ModelSpec,
    input_shape: tuple[int, ...],
    classes: int,
    seed: int,
    input_dtype: torch.dtype = torch.float32,
    objective: TaskSpec = CLASSES,
    device: torch.device = CPU,
    precision: Precision = "float32",
) -> FlatModel:
    """The model of a spec, with its initial parameters.

    It is built and checked on the host, and then moved: its parameters are the same on every device.

    Parameters
    ----------
    spec: which model.
    input_shape, input_dtype: of one record.
    classes: the number of outputs.
    seed: what the parameters are drawn from.
    objective: what the outputs are trained for; classification by default.
    device: where it lives.
    precision: what passes are computed in.

    Returns
    -------
    The model. One that cannot be built, or answers otherwise than asked, is an InputError.

    Examples
    --------
    >>> build(get("mlp", hidden=[8]), (40,), 4, seed=0).d
    364
    """
    task = Task(input_shape, classes, input_dtype, objective)
    spec.verify(task)
    module = make_module(spec, task, seed)
    return FlatModel(module, input_shape, classes, input_dtype, objective, device, precision)


def make_module(spec: ModelSpec, task: Task, seed: int) -> nn.Module:
    """The module of a spec, drawn from `seed`; refuses one that answers otherwise than asked, or cannot be trained."""
    with seeded(seed):
        try:
            module = spec.build(task.input_shape, task.classes)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            if short_of_memory(error):
                raise InputError(
                    f"model {spec.label}: it does not fit into memory{where(error)}; use smaller layers"
                ) from error
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
