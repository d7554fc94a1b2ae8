"""Flower federations: every rule as a strategy, a hostile client as a mod, and the audit of a live federation.

    from scapegoat.integrations.flower import AngularTrimmedMean

    strategy = AngularTrimmedMean(trim=1, fraction_train=0.8)

Needs Flower: `pip install 'scapegoat-fl[flower]'`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import Any

from scapegoat.errors import InputError

INSTALL = "Flower is not installed; install it with: pip install 'scapegoat-fl[flower]'"

_HOMES = {
    "RobustAggregation": "strategies.strategy",
    "RoundReport": "strategies.strategy",
    "PoissonSampler": "strategies.sampling",
    "LegacyRobustAggregation": "strategies.legacy",
    "HostileConfig": "live.hostile",
    "hostile_mod": "live.hostile",
    "AuditMaterial": "live.audit",
}


class FlowerMissingError(InputError, ImportError):
    """Flower is not installed."""


def require_flower(minimum: tuple[int, int] = (0, 0)) -> None:
    """Say in one line how to install Flower, if it is not there or too old."""
    try:
        importlib.import_module("flwr.app")
    except ImportError:
        raise FlowerMissingError(INSTALL) from None
    found = importlib.metadata.version("flwr")
    if tuple(int(part) for part in found.split(".")[:2]) < minimum:
        wanted = ".".join(map(str, minimum))
        raise InputError(f"Flower {found} starts its processes otherwise; this needs: pip install 'flwr>={wanted}'")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    require_flower()
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    strategies = importlib.import_module(f"{__name__}.strategies.named").strategies
    if name in strategies:
        return strategies[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; strategies: {', '.join(sorted(strategies))}")


def __dir__() -> list[str]:
    try:
        require_flower()
    except FlowerMissingError:
        return sorted(globals())
    return sorted({*globals(), *_HOMES, *importlib.import_module(f"{__name__}.strategies.named").strategies})
