"""How a run's setting is named in tables and pictures."""

from __future__ import annotations

from scapegoat.experiments import Spec
from scapegoat.optimizers import OptimizerOptions


def training(spec: Spec) -> list[str]:
    """The server's steps, if not the usual ones, and what protects training, each in a few words."""
    server = spec.federation.server
    told = [] if server == OptimizerOptions() else [f"{server.optimizer} {server.lr:g}"]
    for protection in spec.federation.protect:
        options = [f"{v:g}" for k, v in protection.canonical().items() if isinstance(v, float) and v and k != "delta"]
        told.append(" ".join([protection.name, *options]))
    return told
