"""A user's own model: any `package.module:factory` that returns an nn.Module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field
from torch import nn

from scapegoat.extending.resolve import resolve_callable
from scapegoat.extending.sources import sources
from scapegoat.modelling.flat_model import register
from scapegoat.modelling.task import Task
from scapegoat.modelling.user_model import OwnModel
from scapegoat.models.in_memory import call_factory


@register("import")
class Imported(OwnModel):
    """`factory` names a callable, looked up on the Python path and in the current folder.

    It is called with what it asks for among `input_shape`, `classes` and `outputs` (both say how many outputs), and
    with `options`.
    """

    factory: str
    """`package.module:factory`, a callable that returns a module."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for the factory."""

    @property
    def label(self) -> str:
        """The factory as the user wrote it."""
        return self.factory

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Import the factory and call it."""
        return call_factory(resolve_callable("model", self.factory), input_shape, classes, self.options)

    def code(self, module: nn.Module, task: Task) -> Iterator[bytes]:
        """The files that it is written in."""
        for name, text in sources(self.factory.partition(":")[0]).items():
            yield name.encode()
            yield text
