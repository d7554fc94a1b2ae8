"""A package of an optional framework whose names are imported when they are asked for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

from scapegoat.errors import InputError


def lazy_package(
    package: str, homes: Mapping[str, str], require: Callable[[], None], named: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of `package`.

    `homes` says in which module a name is defined (`.shared.module` for a neighbour), `require` raises unless the
    framework is there, and `named` is `module:attribute` of its classes that are named after rules.
    """
    module, _, kind = named.partition(":")

    def classes() -> dict[str, Any]:
        found: dict[str, Any] = getattr(importlib.import_module(f"{package}.{module}"), kind)
        return found

    def attribute(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if importlib.util.find_spec(f"{package}.{name}") is not None:
            return importlib.import_module(f"{package}.{name}")
        require()
        if name in homes:
            return getattr(importlib.import_module(f".{homes[name]}", package), name)
        if name in classes():
            return classes()[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}; {kind}: {', '.join(sorted(classes()))}")

    def names() -> list[str]:
        there = vars(sys.modules[package])
        try:
            require()
        except InputError:
            return sorted(there)
        return sorted({*there, *homes, *classes()})

    return attribute, names
