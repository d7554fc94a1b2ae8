"""Models: `mlp`, `resnet20`, and any `package.module:factory`."""

from scapegoat.modelling.flat_model import FlatModel, ModelSpec, build, get, register, registry
from scapegoat.modelling.task import Task
from scapegoat.models.in_memory import given

__all__ = ["FlatModel", "ModelSpec", "Task", "build", "get", "given", "register", "registry"]
