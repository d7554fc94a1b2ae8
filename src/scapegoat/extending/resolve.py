"""From `package.module:Name` to the thing itself, with one line for everything that can go wrong."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from scapegoat.errors import InputError
from scapegoat.extending.explained import explained

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_path(name: str) -> bool:
    """Whether a name has the form `package.module:Name`."""
    return _PATH.fullmatch(name) is not None


def resolve(kind: str, path: str) -> Any:
    """What `package.module:Name` names, looked up on the Python path and in the current folder.

    `kind` is what messages call it: `model`, `defense`, ...
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"{kind} {path}: write package.module:name")
    target: Any = import_module(f"{kind} {path}", module_name)
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise InputError(f"{kind} {path}: {module_name} has no {attribute!r}")
        target = getattr(target, part)
    return target


def resolve_callable(kind: str, path: str) -> Callable[..., Any]:
    """As `resolve`, for a function or a class."""
    found = resolve(kind, path)
    if not callable(found):
        raise InputError(f"{kind} {path}: is {type(found).__name__}, not something that can be called")
    return found  # type: ignore[no-any-return]


def import_module(what: str, module_name: str) -> ModuleType:
    """Import a user's module; InputError says what failed and where in the user's code. `what` starts the message."""
    with _current_folder_found():
        try:
            return importlib.import_module(module_name)
        except InputError as error:
            raise InputError(f"{what}: importing {module_name} failed: {error}") from error
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
                raise InputError(
                    f"{what}: cannot import {module_name} ({error}); is it in this folder or installed?"
                ) from error
            raise InputError(f"{what}: importing {module_name} failed: {explained(error)}") from error


@contextmanager
def _current_folder_found() -> Iterator[None]:
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added:
            sys.path.remove(here)
