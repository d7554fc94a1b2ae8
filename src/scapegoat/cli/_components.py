"""Attacks and defenses as they are written on the command line."""

from __future__ import annotations

from typing import Any


def component(text: str) -> Any:
    """A name, or YAML such as `{name: atm, trim: 2}` or a list of stages."""
    from scapegoat.errors import InputError
    from scapegoat.yaml_text import load_yaml

    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return load_yaml(text)
    except InputError as error:
        raise InputError(f"{text!r}: {error}; write a name, or {{name: atm, trim: 2}}") from None
