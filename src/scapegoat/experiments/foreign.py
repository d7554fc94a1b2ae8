"""Components defined outside the package, which a worker process must know too."""

from __future__ import annotations

from scapegoat.errors import InputError
from scapegoat.registry import Registry, is_foreign


def foreign_modules() -> list[str]:
    """Modules outside the package that registered components."""
    found: dict[str, str] = {}
    for registry in Registry.everyone:
        for name, cls in registry.classes():
            if is_foreign(cls):
                found[cls.__module__] = f"{registry.kind} {name!r}"
    if "__main__" in found:
        raise InputError(
            f"{found['__main__']} is defined in the script that was started, which worker processes cannot import: "
            "move it to a module of its own, or use one process (jobs=1)"
        )
    return sorted(found)
