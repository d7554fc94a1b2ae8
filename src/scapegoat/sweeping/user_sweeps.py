"""A user's own sweep: a YAML file of lists.

    title: Which learning rate leaks least?
    base: {data: {name: hospital}, federation: {rounds: 100}}
    grid:
      attack.name: [passive, fedpoisonmia]
      federation.server.lr: [0.01, 0.001]
      defense: [fedavg, {name: atm, trim: 2}]

Rows and columns may be named (`rows: [attack.name]`, `columns: [...]`), or a figure asked for
(`figure: {x: federation.server.lr, line: attack.name, panel: defense}`); else the last list goes across. A list under
`data` takes the place of `--data`; `plugins: [my_package]` are modules that register components of your own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scapegoat.errors import InputError
from scapegoat.sweeping.sweep import FIGURE_METRICS, METRICS, TABLE_METRICS, Axis, Figure, Point, Sweep, Table
from scapegoat.yaml_text import read_yaml

_KEYS = ("title", "about", "plugins", "base", "grid", "rows", "columns", "figure", "metrics")


def load(path: Path) -> Sweep:
    """The sweep that a file describes."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: a sweep is a mapping with the keys base and grid")
    unknown = [key for key in content if key not in _KEYS]
    if unknown:
        raise InputError(f"{path}: {unknown[0]!r} is not a known key (known: {', '.join(_KEYS)})")
    grid = content.get("grid")
    if not isinstance(grid, dict) or not grid:
        raise InputError(f"{path}: grid is missing: key paths and lists, such as attack.name: [passive, adaptive]")
    base = content.get("base") or {}
    if not isinstance(base, dict) or not all(isinstance(key, str) for key in base):
        raise InputError(f"{path}: base: a mapping such as {{federation: {{rounds: 100}}}} is expected")
    if plugins := _plugins(path, content.get("plugins")):
        base = {**base, "plugins": plugins}
    axes = tuple(_axis(path, str(key), values) for key, values in grid.items())
    layout = _layout(path, content, [axis.name for axis in axes])
    if isinstance(layout, Figure) and any(p.x is None for axis in axes if axis.name == layout.x for p in axis.points):
        raise InputError(f"{path}: figure: x: the values of {layout.x} must be numbers")
    metrics = _metrics(path, content.get("metrics"), FIGURE_METRICS if isinstance(layout, Figure) else TABLE_METRICS)
    title = str(content.get("title") or path.stem)
    return Sweep(path.stem, title, str(content.get("about") or ""), axes, layout, data=(), base=base, metrics=metrics)


def _plugins(path: Path, value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(module, str) for module in value):
        raise InputError(f"{path}: plugins: a list of modules is expected, such as [my_package]")
    return value


def _axis(path: Path, key: str, values: Any) -> Axis:
    if not isinstance(values, list) or not values:
        raise InputError(f"{path}: grid.{key}: a list of values is expected, such as [1, 2]")
    labels = [_label(value) for value in values]
    if len(set(labels)) < len(labels):
        raise InputError(f"{path}: grid.{key}: a value is there twice")
    points = tuple(
        Point(label, label, {key: value}, x=_number(value)) for label, value in zip(labels, values, strict=True)
    )
    return Axis(key, key.removesuffix(".name"), points)


def _label(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and "name" in value:
        options = " ".join(f"{k}={_label(v)}" for k, v in value.items() if k != "name")
        return f"{value['name']} {options}".strip()
    return json.dumps(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _layout(path: Path, content: Mapping[str, Any], names: list[str]) -> Table | Figure:
    figure = content.get("figure")
    if figure is not None:
        return _figure(path, figure, names)
    rows, columns = (_keys(path, side, content.get(side), names) for side in ("rows", "columns"))
    if rows is None and columns is None:
        rows, columns = (names[:-1], names[-1:]) if len(names) > 1 else (names, [])
    rows = [n for n in names if n not in (columns or [])] if rows is None else rows
    columns = [n for n in names if n not in rows] if columns is None else columns
    if sorted([*rows, *columns]) != sorted(names):
        raise InputError(f"{path}: rows and columns together must name each key of the grid once: {', '.join(names)}")
    # The data sets of the command line, unless the grid has them.
    return Table(tuple(rows) if "data" in names else ("data", *rows), tuple(columns))


def _keys(path: Path, side: str, value: Any, names: list[str]) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{path}: {side}: {value!r} is not a list of keys of the grid ({', '.join(names)})")
    return value


def _metrics(path: Path, value: Any, default: tuple[str, ...]) -> tuple[str, ...]:
    if value is None:
        return default
    if not isinstance(value, list) or not value:
        raise InputError(f"{path}: metrics: {value!r} is not a list such as [{', '.join(default)}]")
    unknown = next((metric for metric in value if metric not in METRICS), None)
    if unknown is not None:
        raise InputError(f"{path}: metrics: {unknown!r} is not known (known: {', '.join(METRICS)})")
    return tuple(value)


def _figure(path: Path, figure: Any, names: list[str]) -> Figure:
    wanted = {"x", "line", "panel"} if len(names) == 3 else {"x", "line"}
    if not isinstance(figure, dict) or set(figure) != wanted or sorted(map(str, figure.values())) != sorted(names):
        raise InputError(
            f"{path}: figure: x, line and (with a third key) panel must name each key of the grid once: "
            + ", ".join(names)
        )
    if figure["line"] == "data":
        raise InputError(f"{path}: figure: line: every data set has a figure of its own; make data the panel")
    return Figure(figure.get("panel", "data"), figure["line"], figure["x"], str(figure["x"]))
