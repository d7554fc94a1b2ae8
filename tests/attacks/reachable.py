"""What can be reached from an object, by which road."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


def reachable(start: object, name: str = "view") -> dict[str, Any]:
    """Every object that an attribute, an item, a closure, a default or a bound self leads to, by its shortest road.

    Modules, classes and a function's globals are not entered: everybody can import those.
    """
    found: dict[str, Any] = {}
    known: dict[int, Any] = {}  # holds what was seen, so that no id is used twice
    queue = [(name, start)]
    for road, here in queue:
        if id(here) in known or inspect.ismodule(here) or isinstance(here, type):
            continue
        known[id(here)] = here
        found[road] = here
        queue += [(road + step, other) for step, other in _steps(here)]
    return found


def _steps(here: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(here, Mapping):
        for key, value in here.items():
            yield f"[{key!r}]", value
            yield f".key({key!r})", key
    elif isinstance(here, list | tuple | set | frozenset) or type(here).__name__ == "deque":
        yield from ((f"[{i}]", item) for i, item in enumerate(here))
    if dataclasses.is_dataclass(here):
        yield from ((f".{field.name}", getattr(here, field.name)) for field in dataclasses.fields(here))
    yield from ((f".{key}", value) for key, value in getattr(here, "__dict__", {}).items())
    for cls in type(here).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(here, slot):
                yield f".{slot}", getattr(here, slot)
    for cell in getattr(here, "__closure__", None) or ():
        yield ".__closure__", cell.cell_contents
    for attribute in ("__self__", "__func__", "__wrapped__", "__defaults__", "__kwdefaults__"):
        if callable(here) and getattr(here, attribute, None) is not None:
            yield f".{attribute}", getattr(here, attribute)
    if isinstance(here, functools.partial):
        yield from ((".func", here.func), (".args", here.args), (".keywords", here.keywords))
    if isinstance(here, Tensor) and here._base is not None:
        yield "._base", here._base
