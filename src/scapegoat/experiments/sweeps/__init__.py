"""Every table and figure of the paper as a sweep: one file each, found by listing the folder."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from scapegoat.errors import InputError
from scapegoat.experiments.plans import AnySweep

__all__ = ["get", "registry"]


def _load() -> dict[str, AnySweep]:
    modules = sorted(m.name for m in pkgutil.iter_modules(__path__))
    sweeps: list[AnySweep] = [importlib.import_module(f"{__name__}.{name}").SWEEP for name in modules]
    return {sweep.name: sweep for sweep in sweeps}


registry: dict[str, AnySweep] = _load()


def get(name: str) -> AnySweep:
    """A sweep by name; InputError if there is none."""
    if name not in registry:
        close = difflib.get_close_matches(name, registry, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise InputError(f"sweep {name!r}: there is none of that name{hint} (one of: {', '.join(registry)})")
    return registry[name]
