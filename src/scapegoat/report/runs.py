"""Runs as a report needs them: from a run store's directory, or from results still in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from scapegoat import run_folders
from scapegoat.errors import InputError
from scapegoat.run_folders import PART


@dataclass(frozen=True)
class Run:
    """One run. `problem` says why `summary` is empty; the tables are read when asked for.

    A run that is not `sealed` was read from files that nothing vouches for.
    """

    hash: str
    spec: Mapping[str, Any]
    summary: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    sealed: bool = True
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
        raise InputError(f"{directory}: holds no runs (expected: {directory / 'runs'}/<spec hash>/summary.json)")
    runs, unplaced, references = [], [], 0
    for entry in entries:
        run = _unfinished(entry) if entry.suffix == PART else _finished(entry)
        if run.spec and _is_reference(run.spec):
            references += 1
        elif run.spec:
            runs.append(run)
        else:
            unplaced.append(f"{entry.name}: {run.problem}")
    if references:
        count = f"{references} reference federation{'' if references == 1 else 's'}"
        unplaced.append(f"{count}, whose scores the audit adds: run `scapegoat audit --references` again to see them")
    return runs, unplaced


def _is_reference(spec: Mapping[str, Any]) -> bool:
    """Whether a run is there for the scores of others."""
    evaluation = spec.get("evaluation")
    return bool(evaluation.get("reference")) if isinstance(evaluation, Mapping) else False


def _is_run(entry: Path) -> bool:
    if entry.suffix == PART:
        # What is left of a run that was finished after all says nothing.
        return (entry / "spec.json").exists() and not (entry.with_suffix("") / "summary.json").exists()
    return "." not in entry.name and any(entry.glob("*.json"))


def _finished(entry: Path) -> Run:
    found = run_folders.inspect(entry, tables=False)
    if found.problem:
        return Run(found.name, found.spec, problem=f"damaged: {found.problem}" if found.spec else found.problem)
    return Run(
        hash=found.name,
        spec=found.spec,
        summary=found.summary,
        sealed=found.sealed,
        rounds=lambda: _table(entry / "rounds.parquet"),
        targets=lambda: _table(entry / "targets.parquet"),
    )


def _unfinished(entry: Path) -> Run:
    """A run that has no summary, and why."""
    name = entry.name.removesuffix(PART)
    found = run_folders.inspect_part(entry)
    if found.problem:
        return Run(name, {}, problem=found.problem)
    mark = run_folders.read_mark(entry)
    if mark.failed:
        problem = f"failed: {mark.failed}"
    elif mark.rounds:
        problem = f"not finished: round {mark.round} of {mark.rounds}"
    else:
        problem = "not finished"
    return Run(name, found.spec, problem=problem)


def _table(path: Path) -> pa.Table | None:
    return run_folders.read_table(path) if path.exists() else None


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
