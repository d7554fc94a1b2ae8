"""Specs, runs, the run store and executors. `run` computes; what only names or reads runs does without it."""

from scapegoat.experiments.spec import Spec, parse
from scapegoat.experiments.store import RunStore

__all__ = ["RunStore", "Spec", "parse"]
