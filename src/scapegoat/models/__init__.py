"""Models: `mlp`, `resnet20`, and any `package.module:factory`."""

from scapegoat.models.base import FlatModel, ModelSpec, build, get, register, registry
from scapegoat.models.given import given

__all__ = ["FlatModel", "ModelSpec", "build", "get", "given", "register", "registry"]
