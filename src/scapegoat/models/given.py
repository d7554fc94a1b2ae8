"""A model handed over as an object: a module, or a function that makes one. It lives in this process only."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from scapegoat.errors import InputError
from scapegoat.models.base import ModelSpec, register

_objects: dict[str, nn.Module | Callable[..., nn.Module]] = {}


@register("given")
class Given(ModelSpec):
    """A module or factory that Python code handed over with `given(...)`; `key` identifies what it is.

    A module keeps the parameters that it came with: a pretrained model is audited as it is.
    """

    key: str

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


def given(model: nn.Module | Callable[..., nn.Module]) -> Given:
    """Hold a model and return the component that names it."""
    digest = hashlib.sha256()
    if isinstance(model, nn.Module):
        digest.update(repr(model).encode())
        for name, tensor in model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    else:
        try:
            digest.update(inspect.getsource(model).encode())
        except (OSError, TypeError):
            digest.update(f"{model!r}".encode())
    key = digest.hexdigest()[:16]
    _objects[key] = model
    return Given(key=key)


def call_factory(
    factory: Callable[..., Any], input_shape: tuple[int, ...], classes: int, options: dict[str, Any]
) -> nn.Module:
    """Call a factory with what it asks for among `input_shape` and `classes`, and with `options`."""
    offered = {"input_shape": tuple(input_shape), "classes": classes}
    try:
        wanted = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        wanted = {}  # type: ignore[assignment]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in wanted.values())
    arguments = {k: v for k, v in offered.items() if takes_any or k in wanted}
    return factory(**arguments, **options)  # type: ignore[no-any-return]
