"""What the models of users share: they change without a change of name, so a run pins what they are."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn

from scapegoat.errors import InputError
from scapegoat.modelling.checks import made_up
from scapegoat.modelling.flat_model import ModelSpec, make_module
from scapegoat.modelling.seeding import seeded
from scapegoat.modelling.task import Task

# The same for every run of a model, whatever the run's own seed.
_SEED = 0

# `<function relu at 0x7f...>` in a module's repr: another address in every process.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class OwnModel(ModelSpec):
    """A user's own model.

    `content` is the fingerprint that the model must have; a run fills it in, so that a changed model is another run.
    """

    content: str | None = None
    """The fingerprint that the model must have; a run fills it in."""

    def code(self, module: nn.Module, task: Task) -> Iterator[bytes]:
        """What tells apart two models of the same layers and parameters that compute something else."""
        raise NotImplementedError

    def answers(self, input_shape: tuple[int, ...], classes: int, input_dtype: torch.dtype) -> tuple[int, ...] | None:
        """Tried; a model that cannot be built or called is refused elsewhere, with the reason."""
        with seeded(_SEED), torch.no_grad():
            try:
                module = self.build(input_shape, classes).eval()
                return tuple(module(made_up(Task(input_shape, classes, input_dtype))[1]).shape)
            except (Exception, SystemExit):
                return None

    def fingerprint(self, task: Task) -> str:
        """SHA-256 of the module's structure, of its parameters and buffers drawn from a fixed seed, and of its code."""
        state = hashlib.sha256()
        # The order of float sums may decide the last bits of an initialisation.
        with _one_thread():
            module = make_module(self, task, _SEED)
            state.update(_ADDRESS.sub("", repr(module)).encode())
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                kind = f"{name} {tuple(tensor.shape)} {tensor.dtype} {tensor.requires_grad}"
                state.update(f"\0{kind}\0".encode())
                state.update(raw(tensor))
            for part in self.code(module, task):
                state.update(b"\0" + hashlib.sha256(part).digest())
        return state.hexdigest()

    @property
    def unpinned(self) -> bool:
        """Whether a run has yet to fill the content in."""
        return self.content is None

    def pinned(self, task: Task) -> Self:
        """The model with its content."""
        content = self.fingerprint(task)
        if content != self.fingerprint(task):
            raise InputError(
                f"model {self.label}: building it twice from one seed gives two models; "
                "draw its parameters from torch's global generator, which is seeded"
            )
        return self.model_copy(update={"content": content})

    def verify(self, task: Task) -> None:
        """Refuse a model that is no longer the one that was pinned."""
        if self.content is not None and self.content != self.fingerprint(task):
            raise InputError(
                f"model {self.label}: has changed since the run was planned (it is not what model.content says)"
            )


def raw(tensor: Tensor) -> bytes:
    """The values, bit for bit."""
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
