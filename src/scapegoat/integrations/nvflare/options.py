"""An aggregator's options as a FLARE job's configuration can hold them: plain values, and functions by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from scapegoat.aggregation import Rule, RuleLike
from scapegoat.errors import InputError
from scapegoat.extending.resolve import resolve_callable

ServerFunction = Callable[..., Any] | str
"""A function on the server's own data, or its name (`package.module:function`)."""


def plain_rule(rule: RuleLike, options: Mapping[str, Any]) -> Any:
    """The rule as plain values, from what the user or FLARE's configuration of a job says."""
    if isinstance(rule, str) and rule[:1] in "[{" and rule:
        try:
            rule = json.loads(rule)
        except ValueError as error:
            raise InputError(f"rule: is not JSON ({error})") from None
    if isinstance(rule, Rule):
        rule = rule.canonical()
    if options:
        if isinstance(rule, str):
            rule = {"name": rule}
        if not isinstance(rule, Mapping):
            raise InputError(f"{next(iter(options))}: a pipeline's options are given with each of its rules")
        rule = {**rule, **options}
    return dict(rule) if isinstance(rule, Mapping) else rule


def reference(keyword: str, value: ServerFunction | None) -> str | None:
    """A function by its name, which is all that a job's configuration can hold."""
    if value is None or isinstance(value, str):
        return value
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if not module or not name or "<" in name or module == "__main__":
        raise InputError(f"{keyword}: a function at the top of a module that the server can import is expected")
    return f"{module}:{name}"


def server_function(keyword: str, name: str | None) -> Callable[..., Any] | None:
    """A function of the user's, imported when it is first asked: on the server, not where the job is written."""
    if name is None:
        return None
    return lambda *arguments: resolve_callable(keyword, name)(*arguments)
