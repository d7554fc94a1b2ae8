"""A named class for every rule, like the framework's own: `AngularTrimmedMean(trim=1)`."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from scapegoat.aggregation import Rule
from scapegoat.aggregation import registry as rules
from scapegoat.integrations.shared.names import class_name

T = TypeVar("T")


def named_classes(base: type[T], module: str) -> dict[str, type[T]]:
    """A subclass of `base` for every registered rule, whose keywords are the rule's options and those of `base`.

    `base` takes the rule as its first argument; `module` is where the classes are found.
    """
    return {class_name(name): _named(base, module, name, rule) for name, rule in rules.classes()}


def _named(base: type[T], module: str, name: str, rule: type[Rule]) -> type[T]:
    accepted = inspect.signature(base.__init__).parameters
    server = {key: p for key, p in accepted.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
    options = rule.model_fields
    clash = sorted(set(options) & set(server))
    if clash:
        raise TypeError(f"rule {name!r}: its option {clash[0]!r} is also one of {base.__name__}'s")

    def __init__(self: Any, **keywords: Any) -> None:  # noqa: N807
        unknown = sorted(set(keywords) - set(options) - set(server))
        if unknown or "rule" in keywords:
            raise TypeError(
                f"{class_name(name)}() got an unexpected keyword argument {(unknown or ['rule'])[0]!r} "
                f"(the rule's options: {', '.join(options) or 'none'})"
            )
        rule_options = {key: keywords.pop(key) for key in list(keywords) if key in options}
        base.__init__(self, {"name": name, **rule_options}, **keywords)  # type: ignore[call-arg]

    parameter = inspect.Parameter
    own = [
        parameter(
            key,
            parameter.KEYWORD_ONLY,
            default=field.get_default(call_default_factory=True),
            annotation=field.annotation,
        )
        for key, field in options.items()
    ]
    shared = [p.replace(kind=parameter.KEYWORD_ONLY) for key, p in server.items() if key not in ("self", "rule")]
    first = parameter("self", parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([first, *own, *shared])  # type: ignore[attr-defined]
    summary = inspect.getdoc(rule) or ""
    document = f"{summary}\n\nOptions of the rule: {', '.join(options) or 'none'}. The rest as in `{base.__name__}`."
    attributes = {"__init__": __init__, "__doc__": document, "__module__": module, "rule_name": name}
    return type(class_name(name), (base,), attributes)
