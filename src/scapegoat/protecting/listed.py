"""Protections as a spec lists them: `protect: [{name: weight_decay, rate: 0.01}, {name: dp_sgd}]`."""

from __future__ import annotations

from typing import Any

from scapegoat.errors import OptionError, shown
from scapegoat.protecting.contract import Protection, registry


def parse(value: Any) -> tuple[Protection, ...]:
    """Protections as a spec lists them, checked together.

    Parameters
    ----------
    value: a list of names, `{name: ..., option: ...}` mappings or protections.

    Returns
    -------
    The protections in order; what cannot be one, or not beside another, is an OptionError that says why.

    Examples
    --------
    >>> parse(["loss_floor", {"name": "weight_decay", "rate": 0.01}])[1].rate
    0.01
    """
    if not isinstance(value, (list, tuple)):
        raise OptionError("", f"{shown(value)} is not a list of protections such as [{{name: weight_decay}}]")
    found: list[Protection] = []
    for place, entry in enumerate(value):
        try:
            protection = registry.parse(entry)
            if any(protection.name == other.name for other in found):
                raise OptionError("name", f"{protection.name} is there twice; one of each is allowed")
        except OptionError as error:
            raise OptionError(f"{place}.{error.path}".rstrip("."), error.message) from None
        found.append(protection)
    for place, protection in enumerate(found):
        try:
            protection.beside(found[:place] + found[place + 1 :])
        except OptionError as error:
            raise OptionError(f"{place}.{error.path}".rstrip("."), error.message) from None
    return tuple(found)


def written(protections: tuple[Protection, ...]) -> list[dict[str, Any]]:
    """The list as a spec writes it."""
    return [protection.canonical() for protection in protections]
