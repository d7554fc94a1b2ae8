"""Run folders read back: what is in them, and what is wrong with them. The one place that calls a run damaged.

A finished run is `<hash>/` with `spec.json`, `rounds.parquet`, `targets.parquet`, `summary.json`. The folder's name is
the hash of the spec, and `summary.json` holds digests of the other files and of itself: the run is sealed. Runs of
earlier versions are not; of these the name alone is verified. Nothing that a spec names is imported.

A run under way is `<hash>.part/` with its spec, `progress.json` and, if it failed, `error.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scapegoat import stored_json
from scapegoat.errors import InputError

# Part of every hash: raised when the same spec would give other numbers than before.
NUMBERS_VERSION = 1

TABLES = ("rounds.parquet", "targets.parquet")
FILES = ("spec.json", *TABLES, "summary.json")
PART = ".part"
SILENT_SECONDS = 120.0

# What status, tables and reports read without asking; a run without one of them is an older version's.
SPEC_KEYS = ("data.name", "attack.name", "defense")
FIGURES = ("seconds", "membership.accuracy_best", "membership.auc")
SUMMARY_KEYS = (
    "attack",
    "defense",
    "data",
    "rounds",
    "test_accuracy",
    "train_accuracy",
    "membership.best_round",
    "membership.accuracy_final",
    "membership.tpr_at_fpr_01",
    "aggregation.malicious_rounds",
    "aggregation.malicious_kept_rate",
    "aggregation.scapegoat_rate",
    *FIGURES,
)

# What a spec may hold; figures are held to less.
LARGEST_OPTION = sys.float_info.max
LARGEST_TABLE = 1 << 30


@dataclass(frozen=True)
class Stored:
    """A run folder, as far as it can be believed.

    `problem` says what is damaged; then the summary is empty, and so is the spec unless the folder's name vouches for
    it. `lacking` says what an older version did not write yet.
    """

    name: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    lacking: str = ""
    sealed: bool = False


@dataclass(frozen=True)
class Mark:
    """What is known about a run that is not finished. `running` is False for one that was stopped or killed."""

    round: int = 0
    rounds: int = 0
    running: bool = False
    failed: str = ""


def name_of(spec: Mapping[str, Any], numbers: int | None = NUMBERS_VERSION) -> str:
    """SHA-256 of the canonical JSON of a spec: the run's name. Specs of live federations have no `numbers`."""
    versioned = spec if numbers is None else {"numbers": numbers, **spec}
    text = json.dumps(versioned, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def seal(folder: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary with digests of the folder's other files, and of itself."""
    digests = {file: _digest((folder / file).read_bytes()) for file in FILES if file != "summary.json"}
    return {**summary, "digests": {**digests, "summary": _digest_of_summary(summary)}}


def unsealed_words(count: int) -> str:
    """What a reader must know of runs that are read without a seal: anybody may have taken it off."""
    is_one = count == 1
    return (
        f"{count} run{' is' if is_one else 's are'} not sealed: {'its' if is_one else 'their'} tables are not verified"
    )


def inspect(folder: Path, *, tables: bool = True) -> Stored:
    """Read a finished run and verify it, each file once. Never raises.

    Without `tables` those of a run that is not sealed are left alone.
    """
    name = folder.name
    try:
        data = stored_json.read_bytes(folder / "spec.json")
        spec = stored_json.loads(data, LARGEST_OPTION)
        check_spec(spec, name)
    except (OSError, ValueError) as error:
        return Stored(name, problem=_why("spec.json", error))
    try:
        summary = stored_json.read(folder / "summary.json", LARGEST_OPTION)
        digests = summary.pop("digests", None)
        _check_summary(summary, name, digests)
    except (OSError, ValueError) as error:
        return Stored(name, spec, problem=_why("summary.json", error))
    sealed = digests is not None
    if sealed and digests["spec.json"] != _digest(data):
        return Stored(name, spec, problem="spec.json has changed since the run was written")
    for file in TABLES if sealed or tables else ():
        try:
            _check_table(folder / file, digests[file] if sealed else None)
        except PermissionError:
            continue  # another user's: who is a member is for the owner's eyes, and the figures are vouched for
        except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
            return Stored(name, spec, problem=_why(file, error))
    return Stored(name, spec, summary, lacking=_lacking_words(spec, summary), sealed=sealed)


def inspect_part(folder: Path) -> Stored:
    """Read the spec of a run under way. Never raises."""
    name = folder.name.removesuffix(PART)
    try:
        spec = stored_json.read(folder / "spec.json", LARGEST_OPTION)
        check_spec(spec, name)
    except (OSError, ValueError) as error:
        return Stored(name, problem=_why("spec.json", error))
    return Stored(name, spec)


def check_spec(spec: Mapping[str, Any], name: str) -> None:
    """Refuse a spec of other types than we write, or of another run than the one of this name."""
    known = [name_of(spec, numbers) for numbers in range(1, NUMBERS_VERSION + 1)]
    if name not in (*known, name_of(spec, None)):
        raise ValueError(f"is of another run ({known[-1][:12]})")
    _shape(_Spec, spec)


def read_table(path: Path) -> pa.Table:
    """A table of a run; InputError if it is damaged."""
    try:
        _check_table(path, None)
        return pq.read_table(path)
    except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
        reason = _why(path.name, error)
        raise InputError(f"{path.parent}: {reason}; remove the folder to compute the run again") from None


def read_mark(part: Path) -> Mark:
    """How far a run under way is, by the files beside its checkpoint; what cannot be believed counts for nothing."""
    failed, progress = (_json_or_nothing(part / file) for file in ("error.json", "progress.json"))
    rounds = _count(progress.get("rounds"))
    done = min(_count(progress.get("round")), rounds)
    if failed:
        return Mark(done, rounds, failed=" ".join(str(failed.get("error") or "unknown").split()))
    return Mark(done, rounds, running=bool(progress) and _alive(progress))


def _check_summary(summary: dict[str, Any], name: str, digests: Any) -> None:
    if summary.get("spec_hash") != name:
        raise ValueError("is of another run")
    if digests is not None:
        expected = {*FILES, "summary"} - {"summary.json"}
        if not isinstance(digests, dict) or not expected <= digests.keys():
            raise ValueError("has no digest of every file")
        if digests["summary"] != _digest_of_summary(summary):
            raise ValueError("has changed since the run was written")
    # The seed is the spec's.
    stored_json.check({key: value for key, value in summary.items() if key != "seed"})
    _shape(_Summary, summary)


def _check_table(path: Path, digest: str | None) -> None:
    data = stored_json.read_bytes(path, LARGEST_TABLE)
    if digest is not None:
        if digest != _digest(data):
            raise ValueError("has changed since the run was written")
        return
    footer = pq.read_metadata(pa.BufferReader(data))
    groups = (footer.row_group(group) for group in range(footer.num_row_groups))
    if sum(group.total_byte_size for group in groups) > LARGEST_TABLE:
        raise ValueError(f"would take more than {LARGEST_TABLE >> 20} MB")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest_of_summary(summary: Mapping[str, Any]) -> str:
    return _digest(json.dumps(summary, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


def _lacking_words(spec: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    figures = FIGURES if "live" in spec else (*FIGURES, "test_accuracy")
    for file, content, keys in (("spec.json", spec, SPEC_KEYS), ("summary.json", summary, SUMMARY_KEYS)):
        missing = [key for key in keys if _at(content, key) is _ABSENT]
        if missing:
            return f"{file} is of another version: {', '.join(missing)} missing"
    return next((f"summary.json has no {key}" for key in figures if _at(summary, key) is None), "")


_ABSENT = object()


def _at(content: Mapping[str, Any], path: str) -> Any:
    node: Any = content
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return _ABSENT
        node = node[part]
    return node


def _why(file: str, error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{file} is missing"
    if isinstance(error, OSError) and error.strerror:
        return f"{file} cannot be read ({error.strerror})"
    first = (str(error).splitlines() or [""])[0][:200]
    return f"{file} {first or type(error).__name__}"


def _json_or_nothing(path: Path) -> dict[str, Any]:
    try:
        return stored_json.read(path)
    except (OSError, ValueError):
        return {}


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _alive(progress: Mapping[str, Any]) -> bool:
    if progress.get("host") != socket.gethostname():
        last = progress.get("time")
        return isinstance(last, int | float) and abs(time.time() - last) < SILENT_SECONDS
    pid = progress.get("pid")
    if type(pid) is not int or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


class _Open(BaseModel):
    """Types of what is read by name; other keys are allowed, and older versions wrote fewer."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Named(_Open):
    name: str = ""


_Component = _Named | str
_Count = Annotated[int, Field(ge=0)]


class _Federation(_Open):
    clients: _Count | None = None
    malicious: _Count | None = None
    rounds: _Count | None = None
    run_config: dict[str, Any] | None = None


class _Spec(_Open):
    seed: _Count = 0
    data: _Component = ""
    model: _Component = ""
    attack: _Component = ""
    defense: _Component | list[_Component] = ""
    federation: _Federation | None = None


class _Membership(_Open):
    accuracy_best: float | None = None
    auc: float | None = None
    best_round: _Count | None = None
    targets: _Count | None = None
    members: _Count | None = None


class _Summary(_Open):
    attack: str = ""
    defense: str = ""
    data: str = ""
    seed: _Count = 0
    rounds: _Count = 0
    seconds: Annotated[float, Field(ge=0)] | None = None
    test_accuracy: float | None = None
    train_accuracy: float | None = None
    membership: _Membership | None = None
    aggregation: dict[str, Any] | None = None
    versions: dict[str, str] | None = None


def _shape(model: type[BaseModel], content: Mapping[str, Any]) -> None:
    try:
        model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("_"))
        raise ValueError(f"is damaged ({where}: {first['msg']})") from None


def named(runs: Iterable[Path]) -> list[Path]:
    """Of a folder's entries those that can be finished runs, in order: a draft or a run under way has a dot."""
    return sorted(path for path in runs if "." not in path.name and path.is_dir())
