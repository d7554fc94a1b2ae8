"""Models: `mlp`, `resnet20`, and any `package.module:factory`."""

from scapegoat.models.base import FlatModel, ModelSpec, build, get, register, registry
from scapegoat.models.given import given
from scapegoat.models.task import Task

__all__ = ["FlatModel", "ModelSpec", "Task", "build", "get", "given", "register", "registry"]
