"""What a module must be able to do before runs are spent on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scapegoat.errors import InputError
from scapegoat.models.explained import explained
from scapegoat.models.task import Task

RECORDS = 2


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
        _logits(module, zeros, label, task.classes)
        _logits(module, values, label, task.classes)
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not trainable:
        raise InputError(f"model {label}: has no trainable parameters")
    with _training(module):
        logits = _logits(module, values, label, task.classes)
        try:
            grads = torch.autograd.grad(
                F.cross_entropy(logits, torch.arange(RECORDS) % task.classes), trainable, allow_unused=True
            )
        except (Exception, SystemExit) as error:
            if logits.requires_grad:
                raise InputError(f"model {label}: its gradient raised {explained(error)}") from error
            grads = ()
    if all(grad is None for grad in grads):
        raise InputError(
            f"model {label}: in training mode its logits do not lead back to its parameters "
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


def _logits(module: nn.Module, x: Tensor, label: str, classes: int) -> Tensor:
    mode = " in training mode" if module.training else ""
    try:
        logits: Any = module(x)
    except (Exception, SystemExit) as error:
        looks_up = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())
        hint = " (records that are looked up in an embedding want data.tokens=true)"
        raise InputError(
            f"model {label}: a batch of shape {tuple(x.shape)}{mode} raised {explained(error)}"
            f"{hint if looks_up and x.dtype.is_floating_point else ''}"
        ) from error
    wanted = f"logits of shape {(len(x), classes)} are wanted"
    if not isinstance(logits, Tensor):
        kind = type(logits).__name__
        raise InputError(f"model {label}: returned {_article(kind)} {kind}{mode}; {wanted}")
    if tuple(logits.shape) != (len(x), classes):
        raise InputError(
            f"model {label}: maps a batch of shape {tuple(x.shape)}{mode} to {tuple(logits.shape)}; "
            f"{wanted} (one for each of the {classes} classes)"
        )
    if not logits.dtype.is_floating_point:
        raise InputError(f"model {label}: returned {logits.dtype}{mode}; floating-point {wanted}")
    if not bool(logits.isfinite().all()):
        records = "values in 0..1" if bool(x.any()) else "zeros"
        raise InputError(f"model {label}: its logits for records of {records}{mode} are not finite (NaN or infinite)")
    return logits


def _article(noun: str) -> str:
    return "an" if noun[0].lower() in "aeiou" else "a"
