"""NVIDIA FLARE federations: every rule as an aggregator, a hostile client as a filter, and the audit of a FLARE job.

    from scapegoat.integrations.nvflare import AngularTrimmedMean

    recipe = FedAvgRecipe(..., aggregator=AngularTrimmedMean(trim=1))

Needs NVIDIA FLARE: `pip install 'scapegoat-fl[nvflare]'`.
"""

from __future__ import annotations

import importlib

from scapegoat.errors import InputError
from scapegoat.integrations.shared.lazy_package import lazy_package

INSTALL = "NVIDIA FLARE is not installed; install it with: pip install 'scapegoat-fl[nvflare]'"

_HOMES = {
    "RobustAggregator": "aggregator",
    "HostileFilter": "hostile",
    "UnfilteredReply": "hostile",
    "RoundRecorder": "recorder",
    "AuditMaterial": ".shared.audit_inputs",
}


class FlareMissingError(InputError, ImportError):
    """NVIDIA FLARE is not installed."""


def require_flare() -> None:
    """Say in one line how to install NVIDIA FLARE, if it is not there."""
    try:
        importlib.import_module("nvflare.apis.fl_component")
    except ImportError:
        raise FlareMissingError(INSTALL) from None


__getattr__, __dir__ = lazy_package(__name__, _HOMES, require_flare, "named:aggregators")
