"""Every table and figure of the paper as a sweep: one file each, found by listing the folder."""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path

from scapegoat.errors import InputError, did_you_mean
from scapegoat.extending.resolve import is_path, resolve
from scapegoat.sweeping import AnySweep, CostSweep, Sweep, user_sweeps

__all__ = ["find", "get", "registry"]


def _load() -> dict[str, AnySweep]:
    modules = sorted(m.name for m in pkgutil.iter_modules(__path__))
    sweeps: list[AnySweep] = [importlib.import_module(f"{__name__}.{name}").SWEEP for name in modules]
    return {sweep.name: sweep for sweep in sweeps}


registry: dict[str, AnySweep] = _load()


def get(name: str) -> AnySweep:
    """A sweep by name.

    Parameters
    ----------
    name: as `scapegoat list sweeps` shows it.

    Returns
    -------
    The sweep; InputError if there is none of that name.

    Examples
    --------
    >>> get("main-c08").title
    'Five attacks against six defenses, 80% of the clients per round'
    """
    if name not in registry:
        hint = did_you_mean(name, registry)
        raise InputError(f"sweep {name!r}: there is none of that name{hint} (one of: {', '.join(registry)})")
    return registry[name]


def find(name: str) -> AnySweep:
    """A sweep, however it is named.

    Parameters
    ----------
    name: a sweep's name, a YAML file of lists, or `package.module:SWEEP` for one of your own.

    Returns
    -------
    The sweep; InputError if there is none.

    Examples
    --------
    >>> find("scapegoat.sweeps.main_c08:SWEEP") is get("main-c08")
    True
    """
    if name.endswith((".yaml", ".yml")):
        return user_sweeps.load(Path(name))
    if is_path(name):
        found = resolve("sweep", name)
        if not isinstance(found, Sweep | CostSweep):
            raise InputError(f"sweep {name}: is {type(found).__name__}, not a scapegoat.sweeping.Sweep")
        return found
    try:
        return get(name)
    except InputError:
        if os.path.isfile(name):  # False, not an error, for a name that no file can have
            raise InputError(f"{name}: a sweep of your own is a file that ends in .yaml") from None
        raise
