"""The examples in docstrings are run, and what a user calls has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import scapegoat as sg
from scapegoat import aggregation

SOURCE = Path(sg.__file__).parent


def modules_with_examples() -> list[str]:
    found = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
    parts = [path.relative_to(SOURCE.parent).with_suffix("").parts for path in found]
    return [".".join(p for p in part if p != "__init__") for part in parts]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_give_what_they_show(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed


def called_by_users() -> dict[str, object]:
    faces = {f"sg.{name}": getattr(sg, name) for name in sg.__all__ if inspect.isfunction(getattr(sg, name))}
    rules = {f"sg.aggregation.{name}": getattr(aggregation, name, None) for name in aggregation.registry.names()}
    return faces | {name: rule for name, rule in rules.items() if callable(rule)}


@pytest.mark.parametrize("name", called_by_users())
def test_what_a_user_calls_shows_an_example(name: str) -> None:
    assert ">>> " in (called_by_users()[name].__doc__ or ""), f"{name} has no example"
