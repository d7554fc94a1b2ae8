"""Modules of a user's own that register components: named with --plugin or `plugins:`, or found by their entry point.

[project.entry-points."scapegoat.plugins"]
my_package = "my_package.components"
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata

from scapegoat.errors import InputError
from scapegoat.extending.resolve import import_module

GROUP = "scapegoat.plugins"

_loaded: set[str] = set()


def load_plugins(modules: Iterable[str]) -> None:
    """Import modules that register components; one that is missing, raises or takes a taken name is refused."""
    for module in modules:
        if module not in _loaded:
            import_module(f"plugin {module}", module)
            _loaded.add(module)


def load_installed() -> None:
    """Import what installed packages announce under the entry-point group `scapegoat.plugins`."""
    for entry in metadata.entry_points(group=GROUP):
        if ":" in entry.value:
            raise InputError(f"plugin {entry.name}: its entry point must name a module, not {entry.value!r}")
        load_plugins([entry.value])
