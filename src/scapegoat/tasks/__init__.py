"""Tasks: what a model is trained for. One file per task."""

from scapegoat.tasking.contract import TaskSpec, get, register, registry
from scapegoat.tasks.classification import Classification

__all__ = ["Classification", "TaskSpec", "get", "register", "registry"]
