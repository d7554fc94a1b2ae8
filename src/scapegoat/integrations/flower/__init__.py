"""Flower federations: every rule as a strategy, a hostile client as a mod, and the audit of a live federation.

    from scapegoat.integrations.flower import AngularTrimmedMean

    strategy = AngularTrimmedMean(trim=1, fraction_train=0.8)

Needs Flower: `pip install 'scapegoat-fl[flower]'`.
"""

from __future__ import annotations

import importlib
import importlib.metadata

from scapegoat.errors import InputError
from scapegoat.integrations.shared.lazy_package import lazy_package

INSTALL = "Flower is not installed; install it with: pip install 'scapegoat-fl[flower]'"

_HOMES = {
    "RobustAggregation": "strategies.strategy",
    "RoundReport": "strategies.strategy",
    "PoissonSampler": "strategies.sampling",
    "LegacyRobustAggregation": "strategies.legacy",
    "HostileConfig": "live.hostile",
    "hostile_mod": "live.hostile",
    "AuditMaterial": ".shared.audit_inputs",
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


__getattr__, __dir__ = lazy_package(__name__, _HOMES, require_flower, "strategies.named:strategies")
