"""ByzFL's unit tests and examples, and its rules on random inputs, with ours in their places.

ByzFL cannot be a dependency: its package imports torchvision, which has no build for the test machines. What its tests
and docstrings expect is written here as numbers; what it gives on random inputs is in `byzfl.json`, both of version
0.0.11 (MIT licence). Where ours is another definition on purpose, DIFFERS says so, and docs/peers.md says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scapegoat import aggregation, attacks
from scapegoat.combining.rule import Transform
from scapegoat.combining.stack import checked, stacked
from scapegoat.errors import InputError
from tests.attacks.views import mlp, view

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "peers.md"
CASES: list[dict[str, Any]] = json.loads((HERE / "byzfl.json").read_text())["cases"]

X = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
"""The input of all of ByzFL's unit tests (tests/unit_test_attacks.py) and of all its docstrings."""

# What ByzFL's tests and docstrings expect of X. SignFlipping to Mimic are its unit tests.
PUBLISHED: list[tuple[str, dict[str, Any], Any]] = [
    ("SignFlipping", {}, [-4.0, -5.0, -6.0]),
    ("InnerProductManipulation", {"tau": 2.0}, [-8.0, -10.0, -12.0]),
    ("ALittleIsEnough", {"tau": 1.5}, [8.5, 9.5, 10.5]),
    ("Mimic", {"epsilon": 0}, [1.0, 2.0, 3.0]),
    ("Average", {}, [4.0, 5.0, 6.0]),
    ("Median", {}, [4.0, 5.0, 6.0]),
    ("TrMean", {"f": 1}, [4.0, 5.0, 6.0]),
    ("GeometricMedian", {}, [3.78788764, 4.78788764, 5.78788764]),
    ("Krum", {"f": 1}, [1.0, 2.0, 3.0]),
    ("MultiKrum", {"f": 1}, [2.5, 3.5, 4.5]),
    ("CenteredClipping", {}, [4.0, 5.0, 6.0]),
    ("MDA", {"f": 1}, [2.5, 3.5, 4.5]),
    ("Meamed", {"f": 1}, [2.5, 3.5, 4.5]),
    ("NNM", {"f": 1}, [[2.5, 3.5, 4.5], [2.5, 3.5, 4.5], [5.5, 6.5, 7.5]]),
    (
        "Clipping",
        {"c": 2.0},
        [
            [0.53452248, 1.06904497, 1.60356745],
            [0.91168461, 1.13960576, 1.36752692],
            [1.00514142, 1.14873305, 1.29232469],
        ],
    ),
    ("ARC", {"f": 1}, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [4.41004009, 5.04004582, 5.67005155]]),
]

DIFFERS = {"GeometricMedian", "ALittleIsEnough"}
NOT_OURS = {"MoNNA", "CAF", "SMEA", "Inf", "Gaussian"}


def rule(name: str, **options: Any) -> Callable[[Any], Tensor]:
    return lambda x: aggregation.get(name, **options)(x).update


def rows(name: str, **options: Any) -> Callable[[Any], Tensor]:
    """What a transform makes of the rows."""

    def run(x: Any) -> Tensor:
        stage = aggregation.get(name, **options)
        assert isinstance(stage, Transform)
        stack = checked(stacked(x))
        return stage.transform(stack, aggregation.AggregationContext.anonymous(len(stack)))[0].matrix()

    return run


def attack(name: str, **options: Any) -> Callable[[Any], Tensor]:
    def run(x: Any) -> Tensor:
        updates = torch.stack([torch.as_tensor(row) for row in x]).float()
        model = mlp()  # only its peers are looked at
        return attacks.get(name, **options).craft(view(model, peers=updates)).updates[0]

    return run


def ours(name: str, options: dict[str, Any], n: int) -> Callable[[Any], Tensor]:
    """The shim: ByzFL's name and options as ours."""
    f = options.get("f", 0)
    shims: dict[str, Callable[[], Callable[[Any], Tensor]]] = {
        "Average": lambda: rule("fedavg"),
        "Median": lambda: rule("median"),
        "TrMean": lambda: rule("trimmed_mean", trim=f),
        "GeometricMedian": lambda: rule("geometric_median"),
        "Krum": lambda: rule("krum", malicious=f, neighbours="n-f-1"),
        "MultiKrum": lambda: rule("multi_krum", malicious=f, neighbours="n-f-1", select=n - f),
        "CenteredClipping": lambda: rule(
            "centered_clipping", radius=options.get("tau", 100.0), iterations=options.get("L", 1)
        ),
        "MDA": lambda: rule("mda", malicious=f),
        "Meamed": lambda: rule("meamed", malicious=f),
        "NNM": lambda: rows("nearest_neighbour_mixing", malicious=f),
        "Clipping": lambda: rows("norm_clipping", norm=options["c"]),
        "ARC": lambda: rows("arc", malicious=f),
        "SignFlipping": lambda: attack("ipm", scale=1.0),
        "InnerProductManipulation": lambda: attack("ipm", scale=options["tau"]),
        "ALittleIsEnough": lambda: attack("alie", z=options["tau"]),
        "Mimic": lambda: attack("mimic", peer=options["epsilon"]),
    }
    return shims[name]()


KINDS: dict[str, Callable[[list[list[float]]], Any]] = {
    "numpy array": np.array,
    "torch tensor": torch.tensor,
    "list of numpy arrays": lambda x: [np.array(row) for row in x],
    "list of torch tensors": lambda x: [torch.tensor(row) for row in x],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "options", "expected"), PUBLISHED, ids=[case[0] for case in PUBLISHED])
def test_byzfls_tests_and_examples(name: str, options: dict[str, Any], expected: Any, kind: str) -> None:
    answer = ours(name, options, len(X))(KINDS[kind](X)).numpy()
    if name in DIFFERS:
        assert not np.allclose(answer, expected, atol=1e-3), f"{name} agrees: take it out of DIFFERS"
    else:
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=[f"{c['name']} {c['options']} {c['shape']}" for c in CASES])
def test_byzfls_numbers_on_random_inputs(case: dict[str, Any]) -> None:
    name, (n, d) = case["name"], case["shape"]
    if name in NOT_OURS:
        assert f"| `{name}` |" in PAGE.read_text()
        return
    x = np.random.default_rng(case["seed"]).normal(size=(n, d))
    answer = ours(name, case["options"], n)(x).numpy()
    if name in DIFFERS:
        assert not np.allclose(answer, case["expected"], atol=1e-4), f"{name} agrees: take it out of DIFFERS"
    else:
        np.testing.assert_allclose(answer, case["expected"], rtol=1e-5, atol=1e-6)


def test_what_differs_is_in_the_table() -> None:
    text = PAGE.read_text()
    for name in DIFFERS | NOT_OURS:
        assert f"| `{name}` |" in text
    used = {case["name"] for case in CASES} | {case[0] for case in PUBLISHED}
    assert DIFFERS | NOT_OURS - {"Inf", "Gaussian"} <= used


def test_our_geometric_median_is_nearer_to_the_point_with_the_least_sum_of_distances() -> None:
    for case in CASES:
        if case["name"] != "GeometricMedian":
            continue
        x = np.random.default_rng(case["seed"]).normal(size=case["shape"])
        theirs, mine = np.array(case["expected"]), aggregation.geometric_median(x).update.numpy()
        assert np.linalg.norm(x - mine, axis=1).sum() < np.linalg.norm(x - theirs, axis=1).sum()


@pytest.mark.parametrize("name", ["trimmed_mean", "krum", "multi_krum", "meamed", "nearest_neighbour_mixing", "mda"])
def test_too_many_hostile_are_refused_as_byzfl_refuses_them(name: str) -> None:
    """ByzFL raises for 2f >= n when it is called; ours before the run, by `check`."""
    key = "trim" if name == "trimmed_mean" else "malicious"
    with pytest.raises(InputError):
        aggregation.get(name, **{key: 3}).check(5)
