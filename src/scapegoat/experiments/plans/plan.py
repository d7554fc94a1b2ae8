"""A sweep made concrete: its cells with their runs, and the file in the store that lets a report draw them later."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shlex
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scapegoat.errors import InputError, StorageError
from scapegoat.experiments.executors import named
from scapegoat.experiments.plans import paper
from scapegoat.experiments.plans.settings import data_settings, fitted, is_tabular, put
from scapegoat.experiments.plans.sweep import AnySweep, Axis, CostSweep, Figure, Point, Sweep
from scapegoat.experiments.spec import Spec, override_key, parse

FORMAT = 1


@dataclass(frozen=True)
class Cell:
    """One place in a sweep's table or figure: where it is, its spec for seed 0, and the paper's number, if printed."""

    at: Mapping[str, str]
    spec: Spec
    paper: float | None = None

    def seeds(self, count: int) -> list[Spec]:
        """The cell's runs, one a seed."""
        first = self.spec.seed
        return [self.spec.model_copy(update={"seed": first + k}) for k in range(count)]


@dataclass(frozen=True)
class Plan:
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


def plan(
    sweep: AnySweep,
    *,
    data: Sequence[str] = (),
    rounds: int | None = None,
    seeds: int = 1,
    overrides: Sequence[str] = (),
    root: str | Path | None = None,
    source: str = "",
) -> Plan:
    """The sweep on the user's data sets, rounds and other settings; `source` is the file of a user's own."""
    if seeds < 1:
        raise InputError(f"--seeds: {seeds} is not allowed, at least 1 is needed")
    chosen = tuple(data) or sweep.data
    axes = _axes(sweep, data, root)
    cells = tuple(_cells(sweep, axes, rounds, overrides, root))
    _distinct(sweep, cells, overrides)
    arguments = [source or sweep.name]
    arguments += [part for name in data for part in ("--data", name)]
    arguments += [] if rounds is None else ["--rounds", str(rounds)]
    arguments += [part for override in overrides for part in ("--set", override)]
    return Plan(sweep, axes, cells, seeds, root, _note(sweep, chosen, root), tuple(arguments))


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
                    put(plain, path, value)
            if rounds is not None:
                put(plain, "federation.rounds", rounds)
            for override in overrides:
                plain = override_key(plain, override)
            if isinstance(sweep, Sweep) and sweep.fit_rules:
                plain = fitted(plain)
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


def write(plan_: Plan, directory: str | Path, figures: Mapping[int, Any] | None = None) -> Path:
    """Put the plan into the store as `sweeps/<name>-<key>.json`.

    A plan that is there already keeps the larger number of seeds. `figures` are measured seconds, by number of cell.
    """
    path = _path(plan_, directory)
    before = read(path) if path.is_file() else {}
    whole = replace(plan_, seeds=max(plan_.seeds, int(before.get("seeds", 0))))
    content = describe(whole) | {"written": datetime.now(UTC).isoformat(timespec="seconds")}
    for number, cell in enumerate(before.get("cells", [])):
        if "seconds" in cell:
            content["cells"][number]["seconds"] = cell["seconds"]
    for number, figure in (figures or {}).items():
        content["cells"][number]["seconds"] = figure
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from None
    return path


def stored(plan_: Plan, directory: str | Path) -> dict[str, Any]:
    """The plan as `write` left it, or would leave it where nobody started the sweep yet."""
    path = _path(plan_, directory)
    return read(path) if path.is_file() else describe(plan_)


def _path(plan_: Plan, directory: str | Path) -> Path:
    return Path(directory) / "sweeps" / f"{plan_.sweep.name}-{plan_.key}.json"


def describe(plan_: Plan) -> dict[str, Any]:
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
        "format": FORMAT,
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


def read(path: Path) -> dict[str, Any]:
    """A plan that `write` left; InputError if it is not one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is damaged ({type(error).__name__}); remove it and start the sweep again") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path}: was written by another version; remove it and start the sweep again")
    return content


def saved(directory: str | Path) -> list[dict[str, Any]]:
    """Every plan of a store, by name."""
    return [read(path) for path in sorted((Path(directory) / "sweeps").glob("*.json"))]
