"""Specs, runs, the run store, sweeps and executors."""

from scapegoat.experiments.run import Result, run
from scapegoat.experiments.spec import Spec, parse
from scapegoat.experiments.store import RunStore

__all__ = ["Result", "RunStore", "Spec", "parse", "run"]
