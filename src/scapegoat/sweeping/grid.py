"""A sweep made concrete: its cells with their runs, and the file in the store that lets a report draw them later."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scapegoat.errors import InputError, StorageError
from scapegoat.experiments.executors import named
from scapegoat.experiments.spec import Spec, override_key, parse, set_key
from scapegoat.files import write_text
from scapegoat.limits import refuse_many_cells, refuse_many_seeds
from scapegoat.sweeping import file, paper
from scapegoat.sweeping.fitting import data_settings, federation_of, fitted_defense, is_tabular
from scapegoat.sweeping.sweep import AnySweep, Axis, CostSweep, Figure, Point, Sweep


@dataclass(frozen=True)
class Cell:
    """One place in a sweep's table or figure: where it is, its spec for seed 0, and the paper's number, if printed."""

    at: Mapping[str, str]
    spec: Spec
    paper: float | None = None

    def seeds(self, count: int) -> list[Spec]:
        """The cell's runs, one per seed."""
        first = self.spec.seed
        return [self.spec.model_copy(update={"seed": first + k}) for k in range(count)]


@dataclass(frozen=True)
class Grid:
    """All cells of a sweep as the user asked for it. One of the axes, mostly the first, are the data sets: `data`."""

    sweep: AnySweep
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    seeds: int
    root: str | Path | None
    note: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What computes the whole of it again. It is shown to others: of an absolute path only the file's name."""
        arguments = [Path(a).name if Path(a).is_absolute() else a for a in self.arguments]
        return shlex.join(["scapegoat", "sweep", *arguments, "--seeds", str(self.seeds), "--out", "DIR"])

    def chosen(self, only: Mapping[str, set[str]]) -> list[Cell]:
        """The cells that `--only` leaves."""
        return [c for c in self.cells if all(c.at[axis] in keys for axis, keys in only.items())]

    def runs(self, only: Mapping[str, set[str]] | None = None) -> dict[str, Spec]:
        """The runs by name; cells that come to the same spec share a run."""
        return named((s for c in self.chosen(only or {}) for s in c.seeds(self.seeds)), self.root)

    @property
    def key(self) -> str:
        """What tells this plan from others of the same sweep: everything but the number of seeds."""
        text = json.dumps([c.spec.canonical() for c in self.cells], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def parse_only(sweep: AnySweep, only: Iterable[str], axes: Sequence[Axis]) -> dict[str, set[str]]:
    """`["attack=passive,adaptive", "defense=atm"]` by axis; refuses what the sweep does not have."""
    known = {axis.name: {p.key for p in axis.points} for axis in axes}
    chosen: dict[str, set[str]] = {}
    for text in only:
        name, equals, values = text.partition("=")
        if not equals or name not in known:
            raise InputError(f"--only {text!r}: write AXIS=VALUE; the axes of {sweep.name} are {', '.join(known)}")
        for value in values.split(","):
            if value.strip() not in known[name]:
                raise InputError(f"--only {text!r}: {name} has no {value.strip()!r} (it has {', '.join(known[name])})")
            chosen.setdefault(name, set()).add(value.strip())
    return chosen


def lay_out(
    sweep: AnySweep,
    *,
    data: Sequence[str] = (),
    rounds: int | None = None,
    seeds: int = 1,
    overrides: Sequence[str] = (),
    root: str | Path | None = None,
    source: str = "",
) -> Grid:
    """The sweep on the user's data sets, rounds and other settings; `source` is the file of a user's own."""
    chosen = tuple(data) or sweep.data
    axes = _axes(sweep, data, root)
    sizes = [len(axis.points) for axis in axes]
    refuse_many_cells(sweep.name, sizes)
    refuse_many_seeds("--seeds", seeds, math.prod(sizes))
    cells = tuple(_cells(sweep, axes, rounds, overrides, root))
    _distinct(sweep, cells, overrides)
    arguments = [source or sweep.name]
    arguments += [part for name in data for part in ("--data", name)]
    arguments += [] if rounds is None else ["--rounds", str(rounds)]
    arguments += [part for override in overrides for part in ("--set", override)]
    return Grid(sweep, axes, cells, seeds, root, _note(sweep, chosen, root), tuple(arguments))


def _axes(sweep: AnySweep, data: Sequence[str], root: str | Path | None) -> tuple[Axis, ...]:
    own = (sweep.subjects, sweep.sizes) if isinstance(sweep, CostSweep) else sweep.axes
    varied = next((axis.name for axis in own if axis.name in ("data", "data.name")), None)
    if varied is not None and data:
        raise InputError(f"--data {data[0]}: {sweep.name} has {varied} in its grid; --only {varied}=... chooses there")
    return own if varied == "data" else (_data_axis(tuple(data) or sweep.data, root), *own)


def _data_axis(chosen: Sequence[str], root: str | Path | None) -> Axis:
    # A user's sweep may say itself what the data set is.
    if not chosen:
        return Axis("data", "Data set", (Point("", "", {}),))
    return Axis(
        "data",
        "Data set",
        tuple(Point(n, paper.data_label(n), data_settings(n, root)) for n in dict.fromkeys(chosen)),
    )


def _cells(
    sweep: AnySweep, axes: Sequence[Axis], rounds: int | None, overrides: Sequence[str], root: str | Path | None
) -> Iterator[Cell]:
    for points in itertools.product(*(axis.points for axis in axes)):
        at = {axis.name: point.key for axis, point in zip(axes, points, strict=True)}
        plain: dict[str, Any] = {}
        try:
            for settings in (sweep.base, *(point.settings for point in points)):
                for path, value in settings.items():
                    plain = set_key(plain, path.split("."), value, path)
            if rounds is not None:
                plain = set_key(plain, ("federation", "rounds"), rounds, "--rounds")
            for override in overrides:
                plain = override_key(plain, override)
            if isinstance(sweep, Sweep) and sweep.fit_rules:
                plain["defense"] = fitted_defense(plain.get("defense", "fedavg"), federation_of(plain))
            spec = parse(plain)
        except InputError as error:
            where = ", ".join(f"{k}={v}" for k, v in at.items() if v)
            raise InputError(f"{sweep.name} ({where}): {error}") from None
        yield Cell(at, spec, _printed(sweep, at, root))


def _distinct(sweep: AnySweep, cells: Sequence[Cell], overrides: Sequence[str]) -> None:
    """Refuse overrides that undo what the sweep varies: a table whose columns are all the same run misleads."""
    if isinstance(sweep, CostSweep):
        return
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(cell.spec.hash, cell)
        if other is not cell:
            axis = next(name for name in cell.at if cell.at[name] != other.at[name])
            raise InputError(
                f"{sweep.name}: {axis} {other.at[axis]!r} and {cell.at[axis]!r} come to the same run"
                + (f" after --set {' '.join(overrides)}" if overrides else "")
                + f"; to compute a part of the sweep, use --only {axis}={cell.at[axis]}"
            )


def _printed(sweep: AnySweep, at: Mapping[str, str], root: str | Path | None) -> float | None:
    if isinstance(sweep, CostSweep) or sweep.paper is None:
        return None
    data = paper.reference(sweep.paper, at["data"], is_tabular(at["data"], root))
    return paper.printed(sweep.paper).get((data or "", at.get("attack", ""), at["defense"], at["partition"]))


def _note(sweep: AnySweep, chosen: Sequence[str], root: str | Path | None) -> str:
    if isinstance(sweep, CostSweep) or sweep.paper is None:
        return ""
    references = {n: paper.reference(sweep.paper, n, is_tabular(n, root)) for n in chosen}
    others = [
        f"{paper.data_label(n)} is held against the paper's {paper.data_label(r)}"
        for n, r in references.items()
        if r is not None and r != n
    ]
    return "; ".join(others)


def write(plan_: Grid, directory: str | Path, figures: Mapping[int, Any] | None = None) -> Path:
    """Put the plan into the store as `sweeps/<name>-<key>.json`.

    A plan that is there already keeps the larger number of seeds. `figures` are measured seconds, by number of cell.
    """
    path = _path(plan_, directory)
    before = file.read(path) if path.is_file() else {}
    whole = replace(plan_, seeds=max(plan_.seeds, int(before.get("seeds", 0))))
    content = describe(whole) | {"written": datetime.now(UTC).isoformat(timespec="seconds")}
    for cell, old in zip(content["cells"], before.get("cells", []), strict=False):
        if "seconds" in old and old["at"] == cell["at"]:
            cell["seconds"] = old["seconds"]
    for number, figure in (figures or {}).items():
        content["cells"][number]["seconds"] = figure
    try:
        write_text(path, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from None
    return path


def stored(plan_: Grid, directory: str | Path) -> dict[str, Any]:
    """The plan as `write` left it, or would leave it where nobody started the sweep yet."""
    path = _path(plan_, directory)
    return file.read(path) if path.is_file() else describe(plan_)


def kinds(plan_: Grid, only: Mapping[str, set[str]], directory: str | Path) -> dict[str, str]:
    """The plan's runs with their attack. Imports nothing that a spec names.

    A user's own model is built to name its runs. Who only looks reads their names in the plan that `write` left.
    """
    chosen = plan_.chosen(only)
    if not any(cell.spec.model.unpinned for cell in chosen):
        return {run: cell.at.get("attack", "") for cell in chosen for run in named(cell.seeds(plan_.seeds), plan_.root)}
    path = _path(plan_, directory)
    if not path.is_file():
        raise InputError(f"--out {directory}: no sweep of these settings was started there")
    there = [cell for cell in file.read(path)["cells"] if all(cell["at"][axis] in keys for axis, keys in only.items())]
    return {run: cell["at"].get("attack", "") for cell in there for run in cell["runs"][: plan_.seeds]}


def _path(plan_: Grid, directory: str | Path) -> Path:
    return Path(directory) / "sweeps" / f"{plan_.sweep.name}-{plan_.key}.json"


def describe(plan_: Grid) -> dict[str, Any]:
    """The plan as plain values: enough to draw it without the sweep that it came from."""
    sweep = plan_.sweep
    cost = isinstance(sweep, CostSweep)
    layout = sweep.layout
    cells = [
        {
            "at": dict(cell.at),
            "paper": cell.paper,
            "runs": [] if cost else list(named(cell.seeds(plan_.seeds), plan_.root)),
        }
        for cell in plan_.cells
    ]
    return {
        "format": file.FORMAT,
        "sweep": sweep.name,
        "key": plan_.key,
        "title": sweep.title,
        "about": sweep.about,
        "kind": "cost" if cost else "figure" if isinstance(layout, Figure) else "table",
        "layout": asdict(layout),
        "metrics": [] if isinstance(sweep, CostSweep) else list(sweep.metrics),
        "axes": [
            {
                "name": axis.name,
                "title": axis.title,
                "points": [{"key": p.key, "label": p.label, "x": p.x} for p in axis.points],
            }
            for axis in plan_.axes
        ],
        "note": plan_.note,
        "command": plan_.command,
        "seeds": plan_.seeds,
        "cells": cells,
    }


def saved(
    directory: str | Path, left_out: Callable[[str, str], None] = lambda plan, problem: None
) -> list[dict[str, Any]]:
    """Every plan of a store, by name; `left_out` hears of each file that is none, and why."""
    found = []
    for path in sorted((Path(directory) / "sweeps").glob("*.json")):
        try:
            found.append(file.read(path))
        except InputError as error:
            left_out(path.name, str(error))
    return found
