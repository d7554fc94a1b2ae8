"""scapegoat: does a federated-learning system leak who is in the training data, and which aggregation rule stops it?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scapegoat import aggregation, attacks, data, models, protections, report
    from scapegoat.auditing import Audit, audit
    from scapegoat.experiments.run import Result, run
    from scapegoat.experiments.spec import Spec
    from scapegoat.experiments.store import RunStore
    from scapegoat.findings import Findings, load, sweep

__version__ = "0.1.0"

# Imported when first used, so that `scapegoat --help` does not wait for torch.
_ROOMS = ("aggregation", "attacks", "data", "models", "protections", "report", "geometry", "gradients", "membership")
_NAMES = {
    "Audit": "auditing",
    "audit": "auditing",
    "Findings": "findings",
    "load": "findings",
    "sweep": "findings",
    "run": "experiments.run",
    "Spec": "experiments",
    "Result": "experiments.run",
    "RunStore": "experiments",
}

__all__ = [
    "Audit",
    "Findings",
    "Result",
    "RunStore",
    "Spec",
    "aggregation",
    "attacks",
    "audit",
    "data",
    "load",
    "models",
    "protections",
    "report",
    "run",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"scapegoat.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"scapegoat.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'scapegoat' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
