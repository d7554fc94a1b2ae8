"""No tensor of the engine is made without saying where: what is not on a run's device would meet it in a round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import scapegoat

ROOT = Path(scapegoat.__file__).parent

ROOMS = [
    "aggregation",
    "attacks",
    "combining",
    "crafting",
    "federation",
    "gradients",
    "kernels",
    "membership",
    "modelling",
    "models",
    "protecting",
    "protections",
    "tasking",
    "tasks",
    "geometry.py",
    "optimizers.py",
    "randomness.py",
    "chunked_sums.py",
    "narrow_rows.py",
    "split_rows.py",
]

FACTORIES = {"zeros", "ones", "empty", "full", "eye", "arange", "linspace", "rand", "randn", "randint", "randperm"}

DECIDES = {"bool", "int64", "float64"}
"""Types of what decides over rows: masks, places, counts, angles. They live on the host, wherever the rows are."""

ON_THE_HOST = {
    ("federation/local.py", "alone"): "positions among a client's records are drawn on the host",
    ("federation/local.py", "_evaluated"): "positions among a client's records are drawn on the host",
    ("federation/local.py", "draw_batch"): "positions among a client's records are drawn on the host",
    ("attacks/fedpoisonmia.py", "craft"): "weights of samples, which `SampleGradients.combine` takes from the host",
    ("aggregation/fldetector.py", "_left_out"): "scores of clients",
    ("membership/server_view.py", "groups_of"): "places of targets, drawn up before the first round",
    ("kernels/sparse_products.py", "times"): "looking up is for processors; `facts` says so of no other input",
    ("kernels/sparse_products.py", "_strips"): "looking up is for processors; `facts` says so of no other input",
    ("tasks/regression.py", "fitted"): "what a task takes from labels is moved by `TaskSpec.on`",
}
"""Calls of a function that are right as they are, and why."""


def _named(call: ast.Call) -> str | None:
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "torch":
        return function.attr
    return None


def faults(text: str, file: str) -> Iterator[str]:
    """The factory calls of a module that say neither where their tensor is nor why that does not matter."""
    tree = ast.parse(text)
    inside: dict[ast.AST, str] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            inside |= dict.fromkeys(ast.walk(function), function.name)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _named(node) not in FACTORIES:
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        # Numbers by chance are drawn on the host and moved; the strict device refuses those that are not moved.
        if "device" in given or "generator" in given or (file, inside.get(node, "")) in ON_THE_HOST:
            continue
        dtype = given.get("dtype")
        if isinstance(dtype, ast.Attribute) and dtype.attr in DECIDES:
            continue
        yield f"{file}:{node.lineno}: torch.{_named(node)} without device="


def modules() -> list[Path]:
    found = [p for room in ROOMS for p in ([ROOT / room] if room.endswith(".py") else (ROOT / room).rglob("*.py"))]
    assert len(found) > 100
    return found


def test_no_factory_call_lacks_a_device() -> None:
    problems = [fault for path in modules() for fault in faults(path.read_text(), str(path.relative_to(ROOT)))]
    assert not problems, "\n".join(problems)


def test_every_exception_is_still_needed() -> None:
    for file, function in ON_THE_HOST:
        tree = ast.parse((ROOT / file).read_text())
        calls = [
            node
            for found in ast.walk(tree)
            if isinstance(found, ast.FunctionDef) and found.name == function
            for node in ast.walk(found)
            if isinstance(node, ast.Call) and _named(node) in FACTORIES
        ]
        assert calls, f"{file}: {function} makes no tensor any more"


@pytest.mark.parametrize(
    "line", ["torch.zeros(3)", "torch.empty(n, d)", "torch.full((2,), 1.0)", "torch.ones(2, dtype=torch.float32)"]
)
def test_a_planted_factory_call_is_found(line: str) -> None:
    assert list(faults(f"def f(n, d):\n    return {line}\n", "aggregation/planted.py"))


@pytest.mark.parametrize("line", ["torch.zeros(3, device=x.device)", "torch.ones(n, dtype=torch.bool)"])
def test_a_call_that_says_where_is_fine(line: str) -> None:
    assert not list(faults(f"def f(n, x):\n    return {line}\n", "aggregation/planted.py"))
