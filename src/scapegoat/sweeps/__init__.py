"""Every table and figure of the paper as a sweep: one file each, found by listing the folder."""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
from pathlib import Path

from scapegoat.errors import InputError
from scapegoat.sweeping import AnySweep, user_sweeps

__all__ = ["find", "get", "registry"]


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


def find(name: str) -> AnySweep:
    """A sweep by name, or the one that a YAML file describes."""
    if name.endswith((".yaml", ".yml")):
        return user_sweeps.load(Path(name))
    try:
        return get(name)
    except InputError:
        if os.path.isfile(name):  # False, not an error, for a name that no file can have
            raise InputError(f"{name}: a sweep of your own is a file that ends in .yaml") from None
        raise
