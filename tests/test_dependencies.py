"""What the package imports is declared where it is needed; `make test` does without a browser where none can be had."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import scapegoat

SOURCE = Path(scapegoat.__file__).parent
CHECKOUT = SOURCE.parents[1]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

EXTRAS = {
    "integrations/flower": "flower",
    "integrations/nvflare": "nvflare",
    "accounting.py": "dp",
    "kernels/gaussian.py": "dp",
    "experiments/executors/cluster.py": "ray",
    "experiments/ray_cluster.py": "ray",
}
"""Which extra is installed where these run; everything else does with what is always installed."""

DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit_learn", "yaml": "pyyaml", "pydantic_core": "pydantic"}


def test_what_is_imported_is_declared_where_it_is_needed() -> None:
    missing = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        extras = [extra for folder, extra in EXTRAS.items() if place.startswith(folder)]
        declared = _names([*PROJECT["dependencies"], *(d for e in extras for d in PROJECT["optional-dependencies"][e])])
        imported = sorted(set(_imported(ast.parse(path.read_text(encoding="utf-8")))))
        missing += [f"{place}: {name}" for name in imported if DISTRIBUTIONS.get(name, name).lower() not in declared]
    assert not missing


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", one)[0].lower().replace("-", "_") for one in requirements}


def _imported(tree: ast.Module) -> Iterator[str]:
    """The packages of others that are imported, anywhere in a module."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            names = [one.value for one in node.args if isinstance(one, ast.Constant)]
        tops = {name.partition(".")[0] for name in names}
        yield from tops - {"scapegoat"} - sys.stdlib_module_names


@pytest.mark.parametrize(("ci", "goes_on"), [("", True), ("true", False)])
def test_make_test_goes_on_where_no_browser_can_be_installed_but_not_in_ci(
    ci: str, goes_on: bool, tmp_path: Path
) -> None:
    needed = {name: shutil.which(name) for name in ("make", "sh", "id")}
    if None in needed.values():
        pytest.skip("needs make")
    for name, where in needed.items():
        (tmp_path / name).symlink_to(str(where))
    offline = tmp_path / "apt-get"
    offline.write_text("#!/bin/sh\nexit 100\n")
    offline.chmod(0o755)
    done = subprocess.run(
        ["make", "browser"],
        cwd=CHECKOUT,
        env={**os.environ, "PATH": str(tmp_path), "CI": ci},
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == goes_on, done.stderr
    assert "the page tests will be skipped" in done.stdout
