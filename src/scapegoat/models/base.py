"""Models as functions of one flat parameter vector."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scapegoat.errors import InputError
from scapegoat.registry import Component, Registry


class ModelSpec(Component):
    """Options of a model; `build` makes the module for an input shape (without the batch) and a number of classes."""

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """A freshly initialised module that maps [batch, *input_shape] to [batch, classes] logits."""
        raise NotImplementedError


class FlatModel:
    """A module whose trainable parameters are views of one flat float32 vector.

    `point_at(vector)` re-points the parameters without copying; everything else takes the vector as an argument. The
    buffers (BatchNorm's running statistics) stay inside the module and can be read and set as one flat vector.
    """

    def __init__(self, module: nn.Module, input_shape: tuple[int, ...], classes: int) -> None:
        self.module = module
        self.input_shape = tuple(input_shape)
        self.classes = classes
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
        self.image_input = len(self.input_shape) == 3
        self._initial = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self._buffers = [b for _, b in module.named_buffers() if b.dtype.is_floating_point]
        self.has_statistics = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())

    def initial(self) -> Tensor:
        """The parameters that the module was built with."""
        return self._initial.clone()

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
        """Inputs in the memory layout that is fastest here."""
        return x.contiguous(memory_format=torch.channels_last) if self.image_input and x.dim() == 4 else x

    @torch.no_grad()
    def logits(self, vector: Tensor, x: Tensor, batch: int = 1024) -> Tensor:
        """Logits in evaluation mode."""
        self.point_at(vector)
        self.module.eval()
        parts = [self.module(self.prepare(x[i : i + batch])) for i in range(0, len(x), batch)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def gradient(self, vector: Tensor, x: Tensor, y: Tensor, out: Tensor | None = None) -> tuple[Tensor, float]:
        """Gradient [d] of the mean cross-entropy in training mode, and the loss."""
        self.point_at(vector)
        self.module.train()
        loss = F.cross_entropy(self.module(self.prepare(x)), y)
        grads: tuple[Tensor | None, ...] = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        out = torch.empty(self.d) if out is None else out
        offset = 0
        for grad, size in zip(grads, self.sizes, strict=True):
            if grad is None:
                out[offset : offset + size].zero_()
            else:
                out[offset : offset + size].view(grad.shape).copy_(grad)
            offset += size
        return out, float(loss.detach())


def build(spec: ModelSpec, input_shape: tuple[int, ...], classes: int, seed: int) -> FlatModel:
    """The model of a spec with its initial parameters drawn from `seed`; checks that it maps inputs to class logits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = spec.build(input_shape, classes)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"model {spec.name}: building it raised {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise InputError(f"model {spec.name}: the factory returned {type(module).__name__}, not a torch.nn.Module")
    _check_output(module, spec, input_shape, classes)
    return FlatModel(module, input_shape, classes)


def _check_output(module: nn.Module, spec: ModelSpec, input_shape: tuple[int, ...], classes: int) -> None:
    module.eval()
    try:
        with torch.no_grad():
            shape = tuple(module(torch.zeros(2, *input_shape)).shape)
    except Exception as error:
        raise InputError(
            f"model {spec.name}: a batch of shape {(2, *input_shape)} raised {type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else error!r}"
        ) from error
    if shape != (2, classes):
        raise InputError(
            f"model {spec.name}: maps a batch of shape {(2, *input_shape)} to {shape}; "
            f"logits of shape {(2, classes)} are wanted (one for each of the {classes} classes)"
        )


def _expand(name: str) -> tuple[str, dict[str, Any]] | None:
    return ("import", {"factory": name}) if ":" in name else None


registry: Registry[ModelSpec] = Registry("model", "scapegoat.models", expand=_expand)
register = registry.register
get = registry.get
