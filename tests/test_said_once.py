"""No two places of the package do the same work in the same statements, whatever their names and numbers."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import scapegoat

SOURCE = Path(scapegoat.__file__).parent

LINES = 5
"""Statements in a row of so many lines in all are work that has one home; fewer are often only an idiom."""


def test_no_two_places_share_statements() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for shape, line in runs_of_statements(path.read_text(encoding="utf-8")):
            places[shape].append(f"{path.relative_to(SOURCE)}:{line}")
    alike = sorted(" ~ ".join(at) for at in places.values() if len(at) > 1)
    assert not alike, "\n".join(["give these one home:", *alike])


def test_statements_are_the_same_with_other_names_and_numbers() -> None:
    def shapes(text: str) -> set[str]:
        return {shape for shape, _ in runs_of_statements(text)}

    one = "def f(a):\n b = a + 1\n c = a.x * b\n if c:\n  return [b]\n return g(c, 'one')"
    other = 'def h(z: int):\n "Words."\n y = z + 2\n u = z.x * y\n if u:\n  return [y]\n return k(u, "two")'
    assert shapes(one) == shapes(other) != set()
    assert not shapes(one) & shapes(one.replace("a.x", "a.y"))


def runs_of_statements(text: str) -> Iterator[tuple[str, int]]:
    """Every shortest run of statements of `LINES` lines inside functions: its shape, and where it begins."""
    known: dict[ast.AST, str] = {}
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            _shape(function, known)
    for node in known:
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and not isinstance(node, ast.ClassDef):
                yield from _in_block([one for one in block if not _passed_over(one)], known)


def _in_block(block: list[ast.stmt], known: dict[ast.AST, str]) -> Iterator[tuple[str, int]]:
    for first, statement in enumerate(block):
        lines = 0
        for last in range(first, len(block)):
            lines += (block[last].end_lineno or 0) - block[last].lineno + 1
            if lines >= LINES:
                yield "\n".join(known[one] for one in block[first : last + 1]), statement.lineno
                break


def _passed_over(statement: ast.stmt) -> bool:
    """Imports and docstrings."""
    bare = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return bare or isinstance(statement, ast.Import | ast.ImportFrom)


def _shape(node: object, known: dict[ast.AST, str]) -> str:
    """The tree without its variables' names, its constants and its annotations; of statements it is remembered."""
    if isinstance(node, list):
        return f"[{' '.join([_shape(one, known) for one in node])}]"
    if isinstance(node, ast.Name | ast.arg | ast.Constant):
        return type(node).__name__
    if not isinstance(node, ast.AST):
        return str(node)
    if node in known:
        return known[node]
    fields = [name for name in node._fields if name not in ("annotation", "returns", "ctx")]
    shape = f"{type(node).__name__}({' '.join([_shape(getattr(node, name), known) for name in fields])})"
    if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
        known[node] = shape
    return shape
