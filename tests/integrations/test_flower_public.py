"""Flower is used by the modules that it documents, so that a new version does not break what a user relies on."""

from __future__ import annotations

import re
from pathlib import Path

import scapegoat

PUBLIC = ("flwr.app", "flwr.serverapp", "flwr.clientapp", "flwr.common", "flwr.server.strategy", "flwr.simulation")


def test_no_private_module_of_flowers_is_named_in_the_package() -> None:
    named = set()
    for path in Path(scapegoat.__file__).parent.rglob("*.py"):
        for module in re.findall(r"""(?:from|import) (flwr[\w.]*)|["'](flwr\.[\w.]+)["']""", path.read_text("utf-8")):
            named.add(next(filter(None, module)))
    assert "flwr.app" in named
    assert {name for name in named if not any(name == p or name.startswith(f"{p}.") for p in PUBLIC)} == set()
