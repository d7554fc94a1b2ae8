"""Attacks and defenses as they are written on the command line."""

from __future__ import annotations

from typing import Any


def component(text: str) -> Any:
    """A name, or YAML such as `{name: atm, trim: 2}` or a list of stages."""
    import yaml

    from scapegoat.errors import InputError

    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(f"{text!r}: is not YAML; write a name, or {{name: atm, trim: 2}}") from None
