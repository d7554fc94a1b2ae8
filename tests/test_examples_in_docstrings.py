"""The examples in docstrings are run, and everything public has one, and a word on each of its parameters."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import itertools
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import scapegoat as sg

SOURCE = Path(sg.__file__).parent

ROOMS = (
    "scapegoat",
    "scapegoat.aggregation",
    "scapegoat.attacks",
    "scapegoat.data",
    "scapegoat.integrations.flower",
    "scapegoat.integrations.nvflare",
    "scapegoat.membership",
    "scapegoat.models",
    "scapegoat.protections",
    "scapegoat.report",
    "scapegoat.sweeps",
    "scapegoat.tasks",
)
"""What users import from."""

WITHOUT_EXAMPLE = {
    # The page as data: `build` makes it, and its example shows one; nobody writes a cell by hand.
    "scapegoat.report": {
        *("Cell", "Line", "Matrix", "Page", "Panel", "PaperCell", "PaperFigure", "PaperTable", "Section", "Study"),
        "Verdict",
    },
    # A simulated or live federation makes them, round by round; the examples of `Attack`, `early_stopping` and the
    # guides show what is done with them.
    "scapegoat.attacks": {"AttackerView"},
    "scapegoat.protections": {"Look", "Protection"},
    # Components of FLARE that live inside its processes; `scapegoat nvflare audit` wires them into a job.
    "scapegoat.integrations.nvflare": {"HostileFilter", "RoundRecorder", "UnfilteredReply"},
}
"""By room: public names without an example of their own, and why."""


def modules_with_examples() -> list[str]:
    found = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
    parts = [path.relative_to(SOURCE.parent).with_suffix("").parts for path in found]
    return [".".join(p for p in part if p != "__init__") for part in parts]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_give_what_they_show(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed


@functools.cache
def public(room: str) -> dict[str, Any]:
    """Functions and classes that a room gives its users; not exceptions, types of annotations or other rooms."""
    module = importlib.import_module(room)
    names = getattr(module, "__all__", None) or [name for name in dir(module) if name[0].isalpha()]
    if room == "scapegoat.aggregation":
        names = [*names, *(name for name, _ in module.registry.classes())]
    found = {name: getattr(module, name, None) for name in names}
    return {
        name: thing
        for name, thing in found.items()
        if (inspect.isroutine(thing) or inspect.isclass(thing))
        and thing.__module__.startswith("scapegoat.")
        and not (inspect.isclass(thing) and issubclass(thing, Exception))
        and not name.startswith(("require_", "lazy_"))
    }


def named_after_a_rule(thing: Any) -> bool:
    """A strategy or an aggregator that is made of a documented class and a documented rule."""
    return inspect.isclass(thing) and "rule_name" in vars(thing)


def parameters(thing: Any) -> list[str]:
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        return list(thing.model_fields)
    return [
        name
        for name, parameter in inspect.signature(thing).parameters.items()
        if name != "self" and not name.startswith("_") and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def described_below(cls: type) -> set[str]:
    """Attributes of a class, or of one that it is derived from, which have a docstring of their own."""
    found = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("scapegoat."):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for one, two in itertools.pairwise(body):
            if isinstance(one, ast.AnnAssign) and isinstance(two, ast.Expr) and isinstance(one.target, ast.Name):
                found.add(one.target.id)
    return found


EVERYTHING = [(room, name) for room in ROOMS for name in public(room)]


@pytest.mark.parametrize(("room", "name"), EVERYTHING)
def test_what_is_public_shows_an_example(room: str, name: str) -> None:
    thing = public(room)[name]
    if name not in WITHOUT_EXAMPLE.get(room, ()) and not named_after_a_rule(thing):
        assert ">>> " in (inspect.getdoc(thing) or ""), f"{room}.{name} has no example"


@pytest.mark.parametrize(("room", "name"), EVERYTHING)
def test_what_is_public_says_what_its_parameters_mean(room: str, name: str) -> None:
    thing = public(room)[name]
    said = inspect.getdoc(thing) or ""
    if named_after_a_rule(thing):
        return  # its options are the rule's, which are checked where all components are
    below = described_below(thing) if inspect.isclass(thing) else set()
    silent = [
        p for p in parameters(thing) if p not in below and not re.search(rf"\b{re.escape(p)}\b(?!:\s*$)", said, re.M)
    ]
    if isinstance(thing, type) and "FedAvg" in (base.__name__ for base in thing.__bases__):
        silent = [p for p in silent if p not in inspect.signature(thing.__mro__[1]).parameters]
    assert not silent, f"{room}.{name} says nothing about {', '.join(silent)}"


@pytest.mark.parametrize(("room", "name"), EVERYTHING)
def test_public_functions_say_what_they_return(room: str, name: str) -> None:
    thing = public(room)[name]
    if inspect.isclass(thing) or inspect.signature(thing).return_annotation in (None, "None"):
        return
    said = inspect.getdoc(thing) or ""
    assert re.search(r"^Returns\n-------$", said, re.MULTILINE), f"{room}.{name} does not say what it returns"


def test_exceptions_from_the_rule_are_still_there() -> None:
    for room, names in WITHOUT_EXAMPLE.items():
        assert names <= public(room).keys()
