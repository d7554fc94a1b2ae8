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
    "data/base.py",
]

FACTORIES = {"zeros", "ones", "empty", "full", "eye", "arange", "linspace", "rand", "randn", "randint", "randperm"}
FACTORIES |= {"tensor", "as_tensor", "asarray", "from_numpy", "frombuffer", "scalar_tensor"}

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
    ("tasks/regression.py", "wrong"): "wrong labels are drawn on the host, before the first round",
    ("tasks/classification.py", "wrong"): "wrong labels are drawn on the host, before the first round",
    ("tasks/multilabel.py", "wrong"): "wrong labels are drawn on the host, before the first round",
    ("tasks/multilabel.py", "prepared"): "records are told apart by labels before the first round",
    ("tasking/weighing.py", "weights_of"): "what a task takes from labels is moved by `TaskSpec.on`",
    ("aggregation/fldetector.py", "__init__"): "the number of a round",
    ("aggregation/fldetector.py", "_score"): "the number of a round",
    ("aggregation/memory_atm.py", "_mean_angles_to_others"): "which rows are one client's, beside angles",
    ("aggregation/reputation_atm.py", "_standing"): "who was left out for long, beside scores of clients",
    ("combining/arrays.py", "_from_numpy"): "a user's own arrays",
    ("crafting/sending.py", "of"): "places of the peers, moved where they are read",
    ("federation/cast.py", "cast"): "the order of the targets, before the first round",
    ("federation/server.py", "_plant"): "the order of the server's records, which are read by places of the host's",
    ("federation/simulation.py", "state"): "a checkpoint",
    ("federation/simulation.py", "_rows_trained_on"): "places of records, after the last round",
    ("gradients/clients.py", "_shared"): "how many records each client has; what follows is moved",
    ("gradients/layer_map.py", "_make_plan"): "where parameters begin, read as a list",
    ("kernels/row_products.py", "self_products"): "NumPy's product, taken on a processor only",
    ("kernels/sparse_products.py", "of"): "looking up is for processors; `facts` says so of no other input",
    ("kernels/sparse_products.py", "bilinear"): "looking up is for processors; `facts` says so of no other input",
    ("kernels/sparse_products.py", "_transposed"): "looking up is for processors; `facts` says so of no other input",
    ("membership/server_view.py", "state"): "a checkpoint of sums that are the host's",
}
"""Calls of a function that are right as they are, and why."""


def _named(call: ast.Call, imported: dict[str, str]) -> str | None:
    """What of torch's is called, also where it was imported by name."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "torch":
        return function.attr
    return imported.get(function.id) if isinstance(function, ast.Name) else None


def _imported(tree: ast.AST) -> dict[str, str]:
    """The names that a module has for functions of torch's."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "torch"
        for alias in node.names
    }


def _settled(tree: ast.AST) -> Iterator[ast.AST]:
    """The calls that `.to(...)` follows in the same expression, to a device or to a type of what decides."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to"):
            continue
        to = node.args[0] if node.args else None
        is_type = isinstance(to, ast.Attribute) and isinstance(to.value, ast.Name) and to.value.id == "torch"
        if is_type and to.attr not in DECIDES:
            continue
        before: ast.AST = node.func.value
        while isinstance(before, ast.Call | ast.Attribute):
            yield before
            before = before.func if isinstance(before, ast.Call) else before.value


def faults(text: str, file: str) -> Iterator[str]:
    """The factory calls of a module that say neither where their tensor is nor why that does not matter."""
    tree = ast.parse(text)
    imported, settled = _imported(tree), {*_settled(tree)}
    inside: dict[ast.AST, str] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            inside |= dict.fromkeys(ast.walk(function), function.name)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _named(node, imported) not in FACTORIES or node in settled:
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        # Numbers by chance are drawn on the host and moved; the strict device refuses those that are not moved.
        if "device" in given or "generator" in given or (file, inside.get(node, "")) in ON_THE_HOST:
            continue
        dtype = given.get("dtype")
        if isinstance(dtype, ast.Attribute) and dtype.attr in DECIDES:
            continue
        yield f"{file}:{node.lineno}: torch.{_named(node, imported)} without device="


IMPORTS = "import torch\nfrom torch import Tensor, tensor as made, zeros\n"


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
            if isinstance(node, ast.Call) and _named(node, _imported(tree)) in FACTORIES
        ]
        assert calls, f"{file}: {function} makes no tensor any more"


@pytest.mark.parametrize(
    "line",
    [
        "torch.zeros(3)",
        "torch.empty(n, d)",
        "torch.full((2,), 1.0)",
        "torch.ones(2, dtype=torch.float32)",
        "torch.tensor([1.0, 2.0])",
        "torch.as_tensor(n)",
        "torch.from_numpy(n)",
        "torch.from_numpy(n).to(torch.float32)",
        "zeros(3)",
        "made(n)",
    ],
)
def test_a_planted_factory_call_is_found(line: str) -> None:
    assert list(faults(f"{IMPORTS}def f(n, d):\n    return {line}\n", "aggregation/planted.py"))


@pytest.mark.parametrize(
    "line",
    [
        "torch.zeros(3, device=x.device)",
        "torch.ones(n, dtype=torch.bool)",
        "torch.from_numpy(n).float().to(x.device)",
        "torch.from_numpy(n).to(torch.int64)",
        "made(n, device=x.device)",
    ],
)
def test_a_call_that_says_where_is_fine(line: str) -> None:
    assert not list(faults(f"{IMPORTS}def f(n, x):\n    return {line}\n", "aggregation/planted.py"))
