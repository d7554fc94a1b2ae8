"""A small store, and every way we could think of to damage a file of it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scapegoat import auditing, run_folders, sweeping
from scapegoat.experiments import RunStore
from scapegoat.experiments.executors import execute, named
from scapegoat.experiments.executors.heartbeat import Heartbeat
from scapegoat.sweeping.costs import COLUMNS
from scapegoat.sweeps import get
from tests.experiments.tiny import SETTINGS, spec

AUDIT = ["--attack", "passive", "--attack", "fedpoisonmia", "--defense", "fedavg", "--defense", "atm", "--rounds", "2"]
AUDIT += [part for setting in [*SETTINGS, "attack.targets=40"] for part in ("--set", setting)]

HOSTILE: list[Any] = [
    None, True, -1, 0, 10**400, -(10**400), 10**14, 1e308, float("nan"), float("inf"), "", "x" * 5000, [], {}, [[]],
    "\x1b]0;owned\x07\x1b[2J", "\u202egnp", "\x9b31m", "\ud800", "[/b][link=http://x]", "../../..", [1, 2, 3],
    {"name": 3}, {"name": "\x1b[31m"}, [{"name": "atm"}, {"name": None}], {"a": {"b": {"c": [{}]}}}, "=1+1", "\r\n\n",
]  # fmt: skip


def build(folder: Path) -> None:
    """Four finished runs, one under way, one that failed, a plan for them and one of timings."""
    settings = [*SETTINGS, "attack.targets=40"]
    specs = auditing.audit_specs(
        attacks=["passive", "fedpoisonmia"], defenses=["fedavg", "atm"], rounds=2, overrides=settings, out=folder
    )
    store = RunStore(folder)
    assert execute(specs, store).complete
    names = list(named(specs))
    for k in range(2):
        [(name, other)] = named([spec(seed=k + 1)]).items()
        beat = Heartbeat(store, name, other.canonical())
        beat.start()
        beat.beat(1, 3)
        if k:
            beat.failed("no luck", "Traceback")
        names.append(name)
    for sweep, runs in (("mask-selection", names), ("attack-cost", [])):
        plan = sweeping.lay_out(get(sweep), data=["hospital"], rounds=2, overrides=settings)
        path = sweeping.write(
            plan, folder, {0: {"median": 0.1, "low": None, "high": None, "calls": 1}} if not runs else None
        )
        content = json.loads(path.read_text())
        for cell, run in zip(content["cells"], runs, strict=False):
            cell["runs"] = [run]
        path.write_text(json.dumps(content))
    (folder / "costs").mkdir()
    pq.write_table(COLUMNS.empty_table(), folder / "costs" / "attack-cost.parquet")


def damage(store: Path, draw: random.Random) -> str:
    """Damage one file of the store in one way; says which and how."""
    files = sorted(p for p in store.rglob("*") if p.is_file() and p.suffix in (".json", ".parquet"))
    path = draw.choice(files)
    ways: list[Callable[[Path, random.Random], str]] = [_truncated, _flipped, _replaced]
    ways += [_other_value] * 6 if path.suffix == ".json" else [_other_table] * 3
    how = draw.choice(ways)(path, draw)
    if path.parent.parent.name == "runs" and path.parent.suffix == "" and draw.random() < 0.7:
        how += _vouched_for(path.parent, draw)
    return f"{path.relative_to(store)}: {how}"


def _truncated(path: Path, draw: random.Random) -> str:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data) + 1)])
    return "truncated"


def _flipped(path: Path, draw: random.Random) -> str:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 3, 20))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return "bits flipped"


def _replaced(path: Path, draw: random.Random) -> str:
    junk = [b"", b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900, b"PAR1PAR1"]
    junk += [b'{"format": 1}', b'{"a": 1e999}', b'{"a": NaN}', b'"\\ud800"']
    content = draw.choice(junk)
    path.write_bytes(content)
    return f"replaced by {content[:20]!r}"


def _other_value(path: Path, draw: random.Random) -> str:
    value = json.loads(path.read_text())
    node, key = draw.choice(_places(value))
    if draw.random() < 0.15:
        del node[key]
        how = f"{key} removed"
    else:
        node[key] = draw.choice(HOSTILE)
        how = f"{key} = {str(node[key])[:30]!r}"
    path.write_text(json.dumps(value))
    return how


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        node = waiting.pop()
        for key in node if isinstance(node, dict) else range(len(node)):
            found.append((node, key))
            if isinstance(node[key], dict | list):
                waiting.append(node[key])
    return found


def _other_table(path: Path, draw: random.Random) -> str:
    table = pq.read_table(path)
    column = draw.randrange(table.num_columns)
    name = table.column_names[column]
    rows = table.num_rows
    others = {
        "text": pa.array(["\x1b[31m"] * rows),
        "nulls": pa.nulls(rows),
        "lists": pa.array([[1.5]] * rows),
        "huge": pa.array([2**62] * rows),
        "nan": pa.array([float("nan")] * rows),
        "empty lists": pa.array([[]] * rows, pa.list_(pa.int32())),
    }
    how = draw.choice([*others, "removed", "no rows", "twice"])
    if how == "removed":
        table = table.remove_column(column)
    elif how == "no rows":
        table = table.slice(0, 0)
    elif how == "twice":
        table = table.append_column(name, table.column(column))
    else:
        table = table.set_column(column, name, others[how])
    pq.write_table(table, path)
    return f"{name} {how}"


def _vouched_for(folder: Path, draw: random.Random) -> str:
    """As a forger would leave it: the name and the digests are made to match, or the seal is taken off."""
    try:
        spec, summary = (json.loads((folder / file).read_text()) for file in ("spec.json", "summary.json"))
        name = run_folders.name_of(spec)
        summary.pop("digests", None)
        summary["spec_hash"] = name
        sealed = draw.random() < 0.5
        (folder / "summary.json").write_text(json.dumps(run_folders.seal(folder, summary) if sealed else summary))
        if folder.name != name:
            folder.rename(folder.with_name(name))
    except (ValueError, TypeError, AttributeError, OSError, RecursionError):
        return ""
    return ", sealed" if sealed else ", unsealed"


def copy(store: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(store, target)
    return target
