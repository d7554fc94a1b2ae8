"""Seconds per call of attacks and rules, each timed in turn on the same rounds of the same federation.

Timing everybody on the same inputs, one after the other in every round, makes the ratios fair on a machine that others
use too. Seconds are no part of any run: they are kept beside the runs, in `costs/<sweep>.parquet`.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from scapegoat.combining import stack
from scapegoat.errors import InputError, StorageError
from scapegoat.experiments.run import prepare
from scapegoat.experiments.summary import versions
from scapegoat.federation.simulation import Simulation
from scapegoat.files import whole
from scapegoat.heap import keep_pages
from scapegoat.sweeping.grid import Cell, Grid

COLUMNS = pa.schema(
    [
        ("sweep", pa.string()),
        ("data", pa.string()),
        ("model", pa.string()),
        ("subject", pa.string()),
        ("clients", pa.int32()),
        ("parameters", pa.int64()),
        ("round", pa.int32()),
        ("seconds", pa.float64()),
        ("date", pa.string()),
        ("torch", pa.string()),
        ("spec", pa.string()),
    ]
)

OnGroup = Callable[[str], None]


def measure(
    plan: Grid, only: Mapping[str, set[str]], on_group: OnGroup | None = None
) -> tuple[pa.Table, dict[int, Any]]:
    """Time every cell; returns one row per call, and by the number of the cell its median with an interval."""
    kind = plan.sweep.kind  # type: ignore[union-attr]
    subject = plan.sweep.subjects.name  # type: ignore[union-attr]
    chosen = plan.chosen(only)
    numbered = [(number, cell) for number, cell in enumerate(plan.cells) if cell in chosen]

    def group(item: tuple[int, Cell]) -> tuple[tuple[str, str], ...]:
        return tuple((k, v) for k, v in item[1].at.items() if k != subject)

    rows: list[dict[str, Any]] = []
    figures: dict[int, Any] = {}
    for where, members in itertools.groupby(sorted(numbered, key=group), key=group):
        if on_group is not None:
            on_group(", ".join(v for _, v in where))
        cells = list(members)
        timed, parameters = (_time_attacks if kind == "attack" else _time_rules)(cells, plan.root)
        for number, cell in cells:
            seconds = timed[number]
            figures[number] = median_interval(seconds)
            rows += [_row(plan, cell, subject, parameters, round_, value) for round_, value in enumerate(seconds)]
    return pa.Table.from_pylist(rows, schema=COLUMNS), figures


def save(table: pa.Table, directory: Path, name: str) -> Path:
    """Keep the seconds of every call, beside those of other cells; a cell that is measured again replaces its own."""
    path = _path(directory, name)
    again = set(table["spec"].to_pylist())
    before = [row for row in load(directory, name).to_pylist() if row["spec"] not in again]
    merged = pa.concat_tables([pa.Table.from_pylist(before, schema=COLUMNS), table])
    try:
        with whole(path) as draft:
            pq.write_table(merged, draft, compression="zstd")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from None
    return path


def load(directory: Path, name: str) -> pa.Table:
    """What was kept of a sweep, one row per call; rows of an older version have no `spec`."""
    path = _path(directory, name)
    if not path.exists():
        return COLUMNS.empty_table()
    try:
        return pa.Table.from_pylist(pq.read_table(path).to_pylist(), schema=COLUMNS)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: is damaged ({reason}); remove it and measure again") from None


def _path(directory: Path, name: str) -> Path:
    return directory / "costs" / f"{name}.parquet"


def median_interval(seconds: list[float]) -> dict[str, Any]:
    """Median, and its 95% interval from order statistics (None where there are fewer than six calls)."""
    from scipy.stats import binom

    ordered = sorted(seconds)
    count = len(ordered)
    low = int(binom.ppf(0.025, count, 0.5))
    bounded = count >= 6
    return {
        "median": statistics.median(ordered),
        "low": ordered[max(low - 1, 0)] if bounded else None,
        "high": ordered[min(count - low, count - 1)] if bounded else None,
        "calls": count,
    }


def _time_attacks(cells: list[tuple[int, Cell]], root: str | Path | None) -> tuple[dict[int, list[float]], int]:
    simulation, honest = _federation(cells[0][1], root)
    attackers = {n: replace(simulation.cast.attacker, attack=cell.spec.attack, memory={}) for n, cell in cells}
    hostile = list(range(simulation.setting.benign, simulation.setting.clients))
    seconds: dict[int, list[float]] = {n: [] for n in attackers}
    for round_ in range(-1, cells[0][1].spec.federation.rounds):
        benign, start = honest(max(round_, 0)), simulation.server.parameters
        for number, attacker in attackers.items():
            begun = time.perf_counter()
            attacker.craft(max(round_, 0), hostile, start, benign, range(len(benign)))
            # The first round warms caches and is not counted.
            if round_ >= 0:
                seconds[number].append(time.perf_counter() - begun)
        simulation.server.step(stack.stacked(benign), list(range(len(benign))), [1] * len(benign), max(round_, 0))
    return seconds, simulation.model.d


def _time_rules(cells: list[tuple[int, Cell]], root: str | Path | None) -> tuple[dict[int, list[float]], int]:
    simulation, honest = _federation(cells[0][1], root)
    rules = {n: cell.spec.defense for n, cell in cells}
    states: dict[int, dict[str, torch.Tensor]] = {n: {} for n in rules}
    clients = list(range(simulation.setting.clients))
    hostile = clients[simulation.setting.benign :]
    seconds: dict[int, list[float]] = {n: [] for n in rules}
    for round_ in range(-1, cells[0][1].spec.federation.rounds):
        benign = honest(max(round_, 0))
        crafted = simulation.cast.attacker.craft(
            max(round_, 0), hostile, simulation.server.parameters, benign, range(len(benign))
        )
        updates = torch.cat([benign, crafted.updates])
        context = simulation.server.context(clients, [1] * len(clients), max(round_, 0))
        for number, rule in rules.items():
            begun = time.perf_counter()
            rule(updates, replace(context, state=states[number]))
            if round_ >= 0:
                seconds[number].append(time.perf_counter() - begun)
        simulation.server.step(stack.stacked(updates), clients, [1] * len(clients), max(round_, 0))
    return seconds, simulation.model.d


def _federation(cell: Cell, root: str | Path | None) -> tuple[Simulation, Callable[[int], torch.Tensor]]:
    """A federation in which everybody takes part every round, and its honest updates by round. The server averages."""
    spec = cell.spec.model_copy(
        update={
            "defense": type(cell.spec)().defense,
            "federation": cell.spec.federation.model_copy(update={"fraction": 1.0}),
        }
    )
    torch.set_num_threads(spec.threads)
    keep_pages()
    simulation = prepare(spec, root)
    benign = list(range(simulation.setting.benign))

    def honest(round_: int) -> torch.Tensor:
        out = torch.empty(len(benign), simulation.model.d)
        simulation.cast.benign.updates(round_, benign, [simulation.server.parameters] * len(benign), out)
        return out

    return simulation, honest


def _row(plan: Grid, cell: Cell, subject: str, parameters: int, round_: int, seconds: float) -> dict[str, Any]:
    spec = cell.spec
    return {
        "sweep": plan.sweep.name,
        "data": spec.data.name,
        "model": spec.model.name,
        "subject": cell.at[subject],
        "clients": spec.federation.clients,
        "parameters": parameters,
        "round": round_,
        "seconds": seconds,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "torch": versions()["torch"],
        "spec": spec.hash,
    }
