"""The map in docs/architecture.md is the tree as it is, and folders of features list features only."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import scapegoat
from scapegoat.cli.list import KINDS
from scapegoat.registry import Registry

SOURCE = Path(scapegoat.__file__).parent
README = (SOURCE.parents[1] / "README.md").read_text(encoding="utf-8")
MAP = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_room_is_on_the_map() -> None:
    folders = [path.name + "/" for path in SOURCE.iterdir() if (path / "__init__.py").is_file()]
    modules = [path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")]
    missing = [name for name in [*folders, *modules] if f"`{name}" not in MAP]
    assert not missing


def test_what_the_map_names_is_there() -> None:
    top = {path.name.removesuffix(".py") for path in SOURCE.iterdir()}
    named = {path.rstrip("/") for path in re.findall(r"[\w.]+(?:/\w+)*/?", MAP) if path.split("/")[0] in top}
    gone = [p for p in named if "/" in p and not (SOURCE / p).is_dir() and not (SOURCE / f"{p}.py").is_file()]
    assert not gone


@pytest.mark.parametrize(
    "package", ["aggregation", "attacks", "protections", "membership.scores", "tasks", "models", "data.sets"]
)
def test_a_folder_of_features_lists_features_only(package: str) -> None:
    folder = importlib.import_module(f"scapegoat.{package}")
    components = {cls.__module__ for one in Registry.everyone for _, cls in one.classes()}
    others = [m.name for m in pkgutil.iter_modules(folder.__path__) if f"{folder.__name__}.{m.name}" not in components]
    assert not others


def test_every_file_of_sweeps_is_a_sweep() -> None:
    from scapegoat import sweeps

    assert len(sweeps.registry) == len(list(pkgutil.iter_modules(sweeps.__path__)))


@pytest.mark.parametrize("kind", ["attacks", "defenses", "protections", "scores"])
def test_the_readme_names_everything_that_there_is(kind: str) -> None:
    ours = importlib.import_module(KINDS[kind]).registry.classes()
    missing = [name for name, cls in ours if cls.__module__.startswith("scapegoat.") and f"`{name}`" not in README]
    assert not missing


def test_dir_of_the_package_lists_what_can_be_used_once() -> None:
    listed = dir(scapegoat)
    assert set(scapegoat.__all__) <= set(listed)
    assert len(listed) == len(set(listed))
    assert not [name for name in listed if name.startswith("_") or name in ("annotations", "TYPE_CHECKING", "Any")]
    assert all(getattr(scapegoat, name) is not None for name in listed)
