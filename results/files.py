"""Small result files: one row per run, with its whole spec and every figure, fit to be committed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scapegoat.errors import InputError, StorageError
from scapegoat.experiments.store import RunStore
from scapegoat.files import whole
from scapegoat.run_folders import Stored
from scapegoat.sweeping import saved
from scapegoat.sweeping.costs import COLUMNS
from scapegoat.sweeping.file import check

# Keys of the file's metadata: the plans of the sweeps that the runs belong to, and measured seconds of calls.
PLANS, COSTS = b"scapegoat.plans", b"scapegoat.costs"


@dataclass(frozen=True)
class Collection:
    """Result files read back: runs by name (a run that is in several files counts once), plans, seconds of calls."""

    files: Mapping[str, int]
    runs: Mapping[str, dict[str, Any]]
    plans: tuple[dict[str, Any], ...]
    costs: tuple[dict[str, Any], ...]


def collect(directory: str | Path, left_out: Callable[[str, str], None] = lambda what, problem: None) -> pa.Table:
    """The finished runs of a store. `spec` and `summary` are JSON; the keys of both are columns too.

    `left_out` hears of each damaged run or other file, and what is wrong with it.
    """
    store = RunStore(directory)
    plans = saved(directory, lambda plan, problem: left_out(f"sweeps/{plan}", problem))
    costs: list[dict[str, Any]] = []
    for path in sorted((store.directory / "costs").glob("*.parquet")):
        try:
            costs += pq.read_table(path).cast(COLUMNS).to_pylist()
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            left_out(f"costs/{path.name}", _first_line(error))
    rows = []
    for name in store.finished():
        found = store.inspect(name)
        if problem := found.problem or found.lacking:
            left_out(f"run {name}", problem)
        else:
            rows.append(_row(store, found))
    if not rows and not costs:
        raise InputError(f"{directory}: holds no finished runs (expected: {store.runs}/<spec hash>/summary.json)")
    table = _table(rows)
    return table.replace_schema_metadata({PLANS: json.dumps(plans), COSTS: json.dumps(costs)})


def save(table: pa.Table, path: Path) -> None:
    """Write a result file; it is there whole or not at all, and what was there before stays until then."""
    try:
        with whole(path) as draft:
            pq.write_table(table, draft, compression="zstd", compression_level=19)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from None


def load(folder: str | Path) -> Collection:
    """Every result file of a folder."""
    paths = sorted(Path(folder).glob("*.parquet"))
    if not paths:
        raise InputError(
            f"{folder}: holds no result files (`python -m results collect DIR --out {folder}/NAME.parquet`)"
        )
    runs: dict[str, dict[str, Any]] = {}
    plans: dict[tuple[str, str], dict[str, Any]] = {}
    costs: list[dict[str, Any]] = []
    files = {}
    for path in paths:
        try:
            table = pq.read_table(path)
            metadata = table.schema.metadata or {}
            found = {row["run"]: row for row in _parsed(table)}
            for plan in json.loads(metadata.get(PLANS, b"[]")):
                check(plan)
                plans[plan["sweep"], plan["key"]] = plan
            costs += json.loads(metadata.get(COSTS, b"[]"))
        except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, RecursionError, MemoryError) as error:
            raise InputError(f"{path}: is not a result file ({_first_line(error)})") from None
        files[path.name] = len(found)
        runs |= found
    return Collection(files, runs, tuple(plans[key] for key in sorted(plans)), tuple(costs))


def _row(store: RunStore, found: Stored) -> dict[str, Any]:
    spec, summary = dict(found.spec), dict(found.summary)
    written = (store.path(found.name) / "summary.json").stat().st_mtime
    elsewhere = ("run", "date", "spec_hash", "attack", "defense", "data")
    return {
        "run": found.name,
        "date": time.strftime("%Y-%m-%d", time.gmtime(written)),
        **{key: value for key, value in flatten(spec) if key not in ("run", "date")},
        **{key: value for key, value in flatten(summary) if key not in elsewhere},
        "spec": json.dumps(spec, sort_keys=True),
        "summary": json.dumps(summary, sort_keys=True),
    }


def flatten(value: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested mappings as (dotted key, value); an interval becomes two keys, other lists JSON."""
    for key, inner in value.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(inner, Mapping):
            yield from flatten(inner, path)
        elif path.endswith("_ci") and isinstance(inner, list) and len(inner) == 2:
            yield f"{path}_low", inner[0]
            yield f"{path}_high", inner[1]
        else:
            written = isinstance(inner, list) or (isinstance(inner, int) and not -(2**63) <= inner < 2**63)
            yield path, json.dumps(inner) if written else inner


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """A column a key; a key whose values are of several kinds becomes text."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    columns = {}
    for key in keys:
        values = [row.get(key) for row in rows]
        kinds = {type(v) for v in values if v is not None}
        if kinds == {int, float}:
            values = [None if v is None else float(v) for v in values]
        elif len(kinds) > 1:
            values = [None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values]
        columns[key] = pa.array(values)
    return pa.table(columns)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _parsed(table: pa.Table) -> Iterable[dict[str, Any]]:
    if table.num_columns == 0:
        return
    for row in table.select(["run", "date", "spec", "summary"]).to_pylist():
        yield row | {"spec": json.loads(row["spec"]), "summary": json.loads(row["summary"])}
