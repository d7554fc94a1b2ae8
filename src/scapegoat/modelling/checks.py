"""What a module must be able to do before runs are spent on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from scapegoat.errors import InputError
from scapegoat.extending.explained import explained
from scapegoat.modelling.task import Task

RECORDS = 2
MANY = 32
"""Records that tell whether outputs are squashed."""


def made_up(task: Task) -> tuple[Tensor, Tensor]:
    """Two small batches that any model should have an answer to: zeros, and values in 0..1."""
    values = torch.rand(RECORDS, *task.input_shape, generator=torch.Generator().manual_seed(0))
    if not task.input_dtype.is_floating_point:
        values = values.round()
    return torch.zeros_like(values, dtype=task.input_dtype), values.to(task.input_dtype)


def check(module: nn.Module, label: str, task: Task) -> None:
    """Refuse a module that has no finite logits for made-up records, or cannot be trained on them.

    The module keeps its parameters and buffers, and is in evaluation mode afterwards.
    """
    zeros, values = made_up(task)
    module.eval()
    with torch.no_grad():
        _outputs(module, zeros, label, task)
        _outputs(module, values, label, task)
        _refuse_squashed(module, label, task)
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not trainable:
        raise InputError(f"model {label}: has no trainable parameters")
    with _training(module):
        outputs = _outputs(module, values, label, task)
        try:
            # Half the square leads back to whatever the outputs come from, under every loss.
            grads = torch.autograd.grad(outputs.square().sum(), trainable, allow_unused=True)
        except (Exception, SystemExit) as error:
            if outputs.requires_grad:
                raise InputError(f"model {label}: its gradient raised {explained(error)}") from error
            grads = ()
    if all(grad is None for grad in grads):
        raise InputError(
            f"model {label}: in training mode its outputs do not lead back to its parameters "
            "(detach, no_grad or numpy in forward?), so it cannot be trained"
        )


@contextmanager
def _training(module: nn.Module) -> Iterator[None]:
    """Training mode, without a trace in the buffers (BatchNorm's statistics)."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.train()
    try:
        yield
    finally:
        module.eval()
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in before:
                    buffer.copy_(before[name])


def _refuse_squashed(module: nn.Module, label: str, task: Task) -> None:
    """A softmax or a sigmoid at the end, told by what it answers to many records far apart."""
    if not task.input_dtype.is_floating_point:
        far = made_up(task)[1]
    else:
        far = 8 * torch.randn(MANY, *task.input_shape, generator=torch.Generator().manual_seed(1))
    try:
        outputs = task.objective.shaped(module(far))
    except (Exception, SystemExit):
        return  # it takes what it takes; its answers to usual records were right
    problem = task.objective.squashed(outputs) if bool(outputs.isfinite().all()) else None
    if problem is not None:
        raise InputError(f"model {label}: {problem}")


def _outputs(module: nn.Module, x: Tensor, label: str, task: Task) -> Tensor:
    mode = " in training mode" if module.training else ""
    try:
        outputs: Any = module(x)
    except (Exception, SystemExit) as error:
        looks_up = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())
        hint = " (records that are looked up in an embedding want data.tokens=true)"
        raise InputError(
            f"model {label}: a batch of shape {tuple(x.shape)}{mode} raised {explained(error)}"
            f"{hint if looks_up and x.dtype.is_floating_point else ''}"
        ) from error
    expected = task.objective.expected(len(x), task.classes)
    if not isinstance(outputs, Tensor):
        kind = type(outputs).__name__
        raise InputError(f"model {label}: returned {_article(kind)} {kind}{mode}; {expected}")
    problem = task.objective.shape_problem(tuple(outputs.shape), len(x), task.classes)
    if problem is not None:
        raise InputError(
            f"model {label}: maps a batch of shape {tuple(x.shape)}{mode} to {tuple(outputs.shape)}; {problem}"
        )
    if not outputs.dtype.is_floating_point:
        raise InputError(f"model {label}: returned {outputs.dtype}{mode}; floating-point {expected}")
    if not bool(outputs.isfinite().all()):
        records = "values in 0..1" if bool(x.any()) else "zeros"
        raise InputError(f"model {label}: its outputs for records of {records}{mode} are not finite (NaN or infinite)")
    return outputs


def _article(noun: str) -> str:
    return "an" if noun[0].lower() in "aeiou" else "a"
