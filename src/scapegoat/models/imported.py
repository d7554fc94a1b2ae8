"""A user's own model: any `package.module:factory` that returns an nn.Module."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from pydantic import Field
from torch import nn

from scapegoat.errors import InputError
from scapegoat.models.base import register
from scapegoat.models.explained import explained
from scapegoat.models.given import call_factory
from scapegoat.models.own import OwnModel
from scapegoat.models.sources import sources
from scapegoat.models.task import Task


@register("import")
class Imported(OwnModel):
    """`factory` names a callable, looked up on the Python path and in the current folder.

    It is called with what it asks for among `input_shape` and `classes`, and with `options`.
    """

    factory: str
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """The factory as the user wrote it."""
        return self.factory

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Import the factory and call it."""
        return call_factory(_resolve(self.factory), input_shape, classes, self.options)

    def code(self, module: nn.Module, task: Task) -> Iterator[bytes]:
        """The files that it is written in."""
        for name, text in sources(self.factory.partition(":")[0]).items():
            yield name.encode()
            yield text


def _resolve(path: str) -> Any:
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"model {path}: write package.module:factory")
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(
                f"model {path}: cannot import {module_name} ({error}); is it in this folder or installed?"
            ) from error
        raise InputError(f"model {path}: importing {module_name} failed: {explained(error)}") from error
    finally:
        if added:
            sys.path.remove(here)
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise InputError(f"model {path}: {module_name} has no {attribute!r}")
        target = getattr(target, part)
    if not callable(target):
        raise InputError(f"model {path}: is {type(target).__name__}, not something that can be called")
    return target
