"""NVIDIA FLARE federations: every rule as an aggregator, a hostile client as a filter, and the audit of a FLARE job.

    from scapegoat.integrations.nvflare import AngularTrimmedMean

    recipe = FedAvgRecipe(..., aggregator=AngularTrimmedMean(trim=1))

Needs NVIDIA FLARE: `pip install 'scapegoat-fl[nvflare]'`.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from scapegoat.errors import InputError

INSTALL = "NVIDIA FLARE is not installed; install it with: pip install 'scapegoat-fl[nvflare]'"

_HOMES = {
    "RobustAggregator": "aggregator",
    "HostileFilter": "hostile",
    "UnfilteredReply": "hostile",
    "RoundRecorder": "recorder",
    "AuditMaterial": "material",
}


class FlareMissingError(InputError, ImportError):
    """NVIDIA FLARE is not installed."""


def require_flare() -> None:
    """Say in one line how to install NVIDIA FLARE, if it is not there."""
    try:
        importlib.import_module("nvflare.apis.fl_component")
    except ImportError:
        raise FlareMissingError(INSTALL) from None


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    require_flare()
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    aggregators = importlib.import_module(f"{__name__}.named").aggregators
    if name in aggregators:
        return aggregators[name]
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; aggregators: {', '.join(sorted(aggregators))}"
    )


def __dir__() -> list[str]:
    try:
        require_flare()
    except FlareMissingError:
        return sorted(globals())
    return sorted({*globals(), *_HOMES, *importlib.import_module(f"{__name__}.named").aggregators})
