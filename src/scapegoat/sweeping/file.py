"""The file of a sweep's grid, read back: a full grid of known shape, or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from scapegoat import stored_json
from scapegoat.errors import InputError
from scapegoat.limits import MOST_RUNS

FORMAT = 1


def read(path: Path) -> dict[str, Any]:
    """A plan that was written by `plan.write`; InputError if it is not one."""
    try:
        content = stored_json.read(path)
        check(content)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}; remove it and start the sweep again") from None
    return content


def check(content: Any) -> None:
    """Refuse, with a ValueError, what could not be drawn or would take more memory than its file says."""
    if isinstance(content, Mapping) and content.get("format") != FORMAT:
        raise ValueError("was written by another version")
    try:
        _File.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"is damaged ({f'{where}: ' if where else ''}{first['msg']})") from None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Point(_Strict):
    key: str
    label: str
    x: float | None


class _Axis(_Strict):
    name: str
    title: str
    points: Annotated[list[_Point], Field(min_length=1)]


class _Seconds(_Strict):
    median: float
    low: float | None
    high: float | None


class _Cell(_Strict):
    at: dict[str, str]
    paper: float | None
    runs: list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]]
    seconds: _Seconds | None = None


class _Grid(_Strict):
    rows: list[str]
    columns: list[str]


class _Lines(_Strict):
    x: str
    x_label: str
    panel: str
    line: str


class _File(_Strict):
    sweep: str
    key: str
    title: str
    about: str
    kind: Literal["cost", "figure", "table"]
    layout: _Lines | _Grid
    metrics: list[str]
    axes: Annotated[list[_Axis], Field(min_length=1)]
    note: str
    command: str
    seeds: Annotated[int, Field(ge=1, le=MOST_RUNS)]
    cells: list[_Cell]

    @model_validator(mode="after")
    def _full_grid(self) -> _File:
        sizes = {axis.name: {point.key for point in axis.points} for axis in self.axes}
        if len(sizes) != len(self.axes) or any(len(sizes[axis.name]) != len(axis.points) for axis in self.axes):
            raise ValueError("an axis or a point is there twice")
        # Compared before anything of that size is built.
        if math.prod(len(keys) for keys in sizes.values()) != len(self.cells):
            raise ValueError("the cells are not those of the axes")
        places = {tuple(cell.at.get(name) for name in sizes) for cell in self.cells}
        known = all(
            cell.at.keys() == sizes.keys() and all(cell.at[name] in keys for name, keys in sizes.items())
            for cell in self.cells
        )
        if not known or len(places) != len(self.cells):
            raise ValueError("the cells are not those of the axes")
        if self.kind != "cost" and any(len(cell.runs) != self.seeds for cell in self.cells):
            raise ValueError("a cell does not have one run per seed")
        return self

    @model_validator(mode="after")
    def _drawable(self) -> _File:
        axes = {axis.name: axis for axis in self.axes}
        if isinstance(self.layout, _Grid):
            shown = [*self.layout.rows, *self.layout.columns]
            fits = self.kind != "figure" and sorted(shown) == sorted(axes)
        else:
            shown = [*dict.fromkeys((self.layout.x, self.layout.panel, self.layout.line, "data"))]
            x = axes.get(self.layout.x)
            fits = self.kind == "figure" and sorted(shown) == sorted(axes)
            fits = fits and x is not None and all(point.x is not None for point in x.points)
        if not fits:
            raise ValueError("the layout does not show the axes")
        return self
