"""Runs as a report needs them: from a run store's directory, or from results still in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scapegoat.errors import InputError

_PART = ".part"


@dataclass(frozen=True)
class Run:
    """One run. `problem` says why `summary` is empty; the tables are read when asked for."""

    hash: str
    spec: Mapping[str, Any]
    summary: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    rounds: Callable[[], pa.Table | None] = lambda: None
    targets: Callable[[], pa.Table | None] = lambda: None


def read(source: str | Path | Iterable[Any], empty: bool = False) -> tuple[list[Run], list[str]]:
    """Runs of a directory or of results, and what could not be placed at all, a line each.

    A directory without runs is refused unless it may be `empty`.
    """
    if isinstance(source, str | Path):
        return read_directory(Path(source), empty)
    return [run if isinstance(run, Run) else from_result(run) for run in source], []


def read_directory(directory: Path, empty: bool = False) -> tuple[list[Run], list[str]]:
    """Every run under `directory/runs`, finished or not. Damage to one run is that run's problem, not the report's.

    A run that is under way, was stopped or failed is kept in `<hash>.part`, with its spec, `progress.json` and, if it
    failed, `error.json`.
    """
    folder = directory / "runs"
    if not folder.is_dir():
        folder = directory
    try:
        entries = sorted(entry for entry in folder.iterdir() if entry.is_dir() and _is_run(entry))
    except OSError as error:
        raise InputError(f"{directory}: cannot be read ({error.strerror}); name a directory that holds runs") from None
    if not entries and not empty:
        raise InputError(f"{directory}: holds no runs (wanted: {directory / 'runs'}/<spec hash>/summary.json)")
    runs, unplaced = [], []
    for entry in entries:
        try:
            spec = _mapping(entry / "spec.json")
        except (OSError, ValueError) as error:
            unplaced.append(f"{entry.name}: {_why(error, 'spec.json')}")
            continue
        runs.append(_read_run(entry, spec))
    return runs, unplaced


def _is_run(entry: Path) -> bool:
    if entry.suffix == _PART:
        # What is left of a run that was finished after all says nothing.
        return (entry / "spec.json").exists() and not (entry.with_suffix("") / "summary.json").exists()
    return "." not in entry.name and any(entry.glob("*.json"))


def _read_run(entry: Path, spec: Mapping[str, Any]) -> Run:
    problem = ""
    summary: Mapping[str, Any] = {}
    if (entry / "summary.json").exists():
        try:
            summary = _mapping(entry / "summary.json")
        except (OSError, ValueError) as error:
            problem = f"damaged: {_why(error, 'summary.json')}"
    else:
        problem = _unfinished(entry)
    return Run(
        hash=str(summary.get("spec_hash", entry.name.removesuffix(_PART))),
        spec=spec,
        summary=summary,
        problem=problem,
        rounds=lambda: _table(entry / "rounds.parquet"),
        targets=lambda: _table(entry / "targets.parquet"),
    )


def _unfinished(entry: Path) -> str:
    """Why a run has no summary."""
    failed, progress = (_mapping_or_nothing(entry / name) for name in ("error.json", "progress.json"))
    if failed:
        reason = " ".join(str(failed.get("error", "")).split())
        return f"failed: {reason}" if reason else "failed"
    if progress:
        return f"not finished: round {progress.get('round', '?')} of {progress.get('rounds', '?')}"
    return "not finished" if entry.suffix == _PART else "damaged: summary.json is missing"


def _table(path: Path) -> pa.Table | None:
    if not path.exists():
        return None
    return pq.read_table(path)


def _mapping(path: Path) -> Mapping[str, Any]:
    loaded = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(loaded, dict):
        raise ValueError("is not a JSON object")
    return loaded


def _mapping_or_nothing(path: Path) -> Mapping[str, Any]:
    try:
        return _mapping(path)
    except (OSError, ValueError):
        return {}


def _why(error: Exception, name: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{name} is missing"
    if isinstance(error, json.JSONDecodeError):
        return f"{name} is not JSON (line {error.lineno})"
    return f"{name}: {error}".splitlines()[0]


def from_result(result: Any) -> Run:
    """A run from anything with `spec`, `summary`, `rounds` and `targets`; or, if it failed, `spec` and `reason`."""
    spec = getattr(result, "spec", {})
    canonical = getattr(spec, "canonical", None)
    written = canonical() if callable(canonical) else dict(spec)
    reason = getattr(result, "reason", None)
    if reason is not None:
        return Run(hash=str(getattr(result, "name", "")), spec=written, problem=f"failed: {reason}")
    summary = dict(result.summary)
    return Run(
        hash=str(summary.get("spec_hash", "")),
        spec=written,
        summary=summary,
        rounds=lambda: getattr(result, "rounds", None),
        targets=lambda: getattr(result, "targets", None),
    )
