"""A model handed over as an object: a module, or a function that makes one. It lives in this process only."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import nn

from scapegoat.errors import InputError
from scapegoat.modelling.checks import made_up
from scapegoat.modelling.flat_model import register
from scapegoat.modelling.seeding import seeded
from scapegoat.modelling.task import Task
from scapegoat.modelling.user_model import OwnModel, raw

_objects: dict[str, nn.Module | Callable[..., nn.Module]] = {}


@register("given")
class Given(OwnModel):
    """A module or factory that Python code handed over with `given(...)`; `key` says which, once pinned by its content.

    A module keeps the parameters that it came with: a pretrained model is audited as it is.
    """

    in_process = True
    key: str
    """Which of the objects handed over."""

    @property
    def label(self) -> str:
        """The name of the function or class."""
        held = _objects.get(self.key)
        return self.key if held is None else getattr(held, "__qualname__", type(held).__name__)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """A copy of the module, or what the factory makes."""
        if self.key not in _objects:
            raise InputError(
                f"model {self.key}: was handed over in another process; name it package.module:factory to use it here"
            )
        held = _objects[self.key]
        if isinstance(held, nn.Module):
            return copy.deepcopy(held)
        return call_factory(held, input_shape, classes, {})

    def code(self, module: nn.Module, task: Task) -> Iterator[bytes]:
        """What it answers: an object may have no file, and a closure's source does not tell what it closes over."""
        module.eval()
        with torch.no_grad(), seeded(0):
            for x in made_up(task):
                yield raw(module(x))

    def pinned(self, task: Task) -> Self:
        """With the content as key, so that the same model is the same run in another process too."""
        pinned = super().pinned(task)
        assert pinned.content is not None
        _objects[pinned.content] = _objects[self.key]
        return pinned.model_copy(update={"key": pinned.content})


def given(model: nn.Module | Callable[..., nn.Module]) -> Given:
    """Hold a model that a spec cannot name, in this process.

    Parameters
    ----------
    model: a module, which keeps its parameters, or a factory.

    Returns
    -------
    The component that stands for it in a spec.

    Examples
    --------
    >>> given(nn.Linear(3, 2)).label
    'Linear'
    """
    key = f"object-{len(_objects)}"
    _objects[key] = model
    return Given(key=key)


def call_factory(
    factory: Callable[..., Any], input_shape: tuple[int, ...], classes: int, options: dict[str, Any]
) -> nn.Module:
    """Call a factory with what it asks for among `input_shape`, `classes` and `outputs`, and with `options`."""
    offered = {"input_shape": tuple(input_shape), "classes": classes, "outputs": classes}
    try:
        wanted = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        wanted = {}  # type: ignore[assignment]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in wanted.values())
    arguments = {k: v for k, v in offered.items() if takes_any or k in wanted}
    return factory(**arguments, **options)  # type: ignore[no-any-return]
