"""The source files behind a user's module: its own, and those beside it that it imports."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path

from scapegoat.errors import InputError
from scapegoat.extending.explained import installed

# The text of each module when it was first asked for, and the import that it belongs to (a reload is another one).
_seen: dict[str, tuple[ModuleSpec, bytes]] = {}


def fingerprint(cls: type) -> str:
    """SHA-256 of the code behind a class of a user's own: its module, and those of its package that it imports.

    An installed package counts too: its files change when it is installed again, whatever its version says. A class of
    the script that was started, or of a notebook, is its own text.
    """
    found = sources(cls.__module__, even_installed=True) if cls.__module__ != "__main__" else {}
    if not found:
        try:
            found = {cls.__qualname__: inspect.getsource(cls).encode()}
        except (OSError, TypeError):
            raise InputError(
                f"{cls.__qualname__}: has no source to tell it by; write it in a file or a notebook"
            ) from None
    state = hashlib.sha256()
    for name, text in found.items():
        state.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(text).digest())
    return state.hexdigest()


def sources(module_name: str, even_installed: bool = False) -> dict[str, bytes]:
    """Text by module name. Empty for an installed package: that one changes with its version, not with an edit.

    With `even_installed`, the package's own modules are given all the same. Imports are read from the text, not from
    what this process has loaded: another process finds the same files.
    """
    folder = _folder(module_name)
    if folder is None or (installed(folder) and not even_installed):
        return {}
    own = f"{module_name.partition('.')[0]}."
    found: dict[str, bytes] = {}
    pending = [module_name]
    while pending:
        name = pending.pop()
        path = _file(folder, name)
        if name in found or path is None or (installed(folder) and not f"{name}.".startswith(own)):
            continue
        found[name] = path.read_bytes()
        _refuse_edited(name, path, found[name])
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        pending += [package, *_imports(found[name], package)]
    return dict(sorted(found.items()))


def _folder(module_name: str) -> Path | None:
    """Where the import of the top-level package starts."""
    file = getattr(sys.modules[module_name], "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    return path.parents[module_name.count(".") + (path.name == "__init__.py")]


def _file(folder: Path, name: str) -> Path | None:
    base = folder.joinpath(*name.split("."))
    candidates = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next((path for path in candidates if name and path.is_file()), None)


def _imports(text: bytes, package: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package or None)
            except ImportError:
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _refuse_edited(name: str, path: Path, text: bytes) -> None:
    """A process keeps the code that it imported: an edited file no longer says what would run."""
    current = getattr(sys.modules.get(name), "__spec__", None)
    if current is None:
        return
    imported, before = _seen.setdefault(name, (current, text))
    if imported is not current:
        _seen[name] = (current, text)
    elif before != text:
        raise InputError(f"{path}: has changed since this process imported it; start Python again to use it as it is")
