"""A user's own model: any `package.module:factory` that returns an nn.Module."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from pydantic import Field
from torch import nn

from scapegoat.errors import InputError
from scapegoat.models.base import ModelSpec, register
from scapegoat.models.given import call_factory


@register("import")
class Imported(ModelSpec):
    """`factory` names a callable, looked up on the Python path and in the current folder.

    It is called with what it asks for among `input_shape` and `classes`, and with `options`.
    """

    factory: str
    options: dict[str, Any] = Field(default_factory=dict)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Import the factory and call it."""
        return call_factory(_resolve(self.factory), input_shape, classes, self.options)


def _resolve(path: str) -> Any:
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"model {path!r}: write package.module:factory")
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(
            f"model {path!r}: cannot import {module_name} ({error}); is it in this folder or installed?"
        ) from error
    finally:
        if added:
            sys.path.remove(here)
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise InputError(f"model {path!r}: {module_name} has no {attribute!r}")
        target = getattr(target, part)
    if not callable(target):
        raise InputError(f"model {path!r}: is {type(target).__name__}, not something that can be called")
    return target
