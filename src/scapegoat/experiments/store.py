"""Runs on disk: a folder a run, there whole or not at all. Any number of workers write without a lock."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from scapegoat.errors import InputError, StorageError

log = logging.getLogger("scapegoat.experiments")

FILES = ("spec.json", "rounds.parquet", "targets.parquet", "summary.json")

# What status, tables and reports read without asking; a run without one of them is an older version's.
SPEC_KEYS = ("data.name", "attack.name", "defense")
SUMMARY_KEYS = (
    "attack",
    "defense",
    "data",
    "rounds",
    "seconds",
    "test_accuracy",
    "train_accuracy",
    "membership.best_round",
    "membership.accuracy_best",
    "membership.accuracy_final",
    "membership.auc",
    "membership.tpr_at_fpr_01",
    "aggregation.malicious_rounds",
    "aggregation.malicious_kept_rate",
    "aggregation.scapegoat_rate",
)

ROUNDS = pa.schema(
    [
        ("round", pa.int32()),
        ("loss", pa.float64()),
        ("test_accuracy", pa.float64()),
        ("attack_accuracy", pa.float64()),
        ("attack_precision", pa.float64()),
        ("attack_recall", pa.float64()),
        ("attack_auc", pa.float64()),
        ("clients", pa.list_(pa.int32())),
        ("malicious", pa.list_(pa.bool_())),
        ("kept", pa.list_(pa.bool_())),
        ("rejected", pa.list_(pa.bool_())),
        ("mean_angle", pa.list_(pa.float32())),
        ("norm", pa.list_(pa.float32())),
        ("attack_notes", pa.map_(pa.string(), pa.float64())),
        ("masks", pa.list_(pa.int32())),
        ("defense_notes", pa.map_(pa.string(), pa.float64())),
    ]
)

TARGETS = pa.schema(
    [
        ("target", pa.int32()),
        ("record", pa.int64()),
        ("label", pa.int32()),
        ("wrong_label", pa.int32()),
        ("member", pa.bool_()),
        ("client", pa.int32()),
        ("score_final", pa.float32()),
        ("score_mean", pa.float32()),
        ("called_final", pa.bool_()),
        ("called_best", pa.bool_()),
        ("called_rate", pa.float64()),
    ]
)


class RunStore:
    """`DIR/runs/<hash>/` holds a finished run; `DIR/runs/<hash>.part/` one that is under way."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.runs = self.directory / "runs"

    def path(self, name: str) -> Path:
        """Where a finished run is, or will be."""
        return self.runs / name

    def part(self, name: str) -> Path:
        """Where a run is while it is under way."""
        return self.runs / f"{name}.part"

    def has(self, name: str) -> bool:
        """The run is there, whole."""
        return all((self.path(name) / file).is_file() for file in FILES)

    def finished(self) -> list[str]:
        """Names of all finished runs, sorted."""
        if not self.runs.is_dir():
            return []
        return sorted(p.name for p in self.runs.iterdir() if p.is_dir() and "." not in p.name and self.has(p.name))

    def damaged(self) -> list[str]:
        """Names of run folders that are not whole (an older version's, or tampered with)."""
        if not self.runs.is_dir():
            return []
        folders = sorted(p.name for p in self.runs.iterdir() if p.is_dir() and "." not in p.name)
        return [name for name in folders if self.problem(name) is not None]

    def problem(self, name: str) -> str | None:
        """What is wrong with a run folder, or None."""
        missing = [file for file in FILES if not (self.path(name) / file).is_file()]
        if missing:
            return f"{', '.join(missing)} missing"
        try:
            summary = self.summary(name)
            if summary.get("spec_hash") != name:
                return "summary.json belongs to another run"
            for file, content, keys in (
                ("spec.json", self.spec(name), SPEC_KEYS),
                ("summary.json", summary, SUMMARY_KEYS),
            ):
                if lacking := _lacking(content, keys):
                    return f"{file} is of another version: {', '.join(lacking)} missing"
            for table in ("rounds.parquet", "targets.parquet"):
                pq.read_metadata(self.path(name) / table)
        except (InputError, OSError, pa.ArrowException) as error:
            return str(error).splitlines()[0]
        return None

    def spec(self, name: str) -> dict[str, Any]:
        """The run's canonical spec."""
        return self._json(name, "spec.json")

    def summary(self, name: str) -> dict[str, Any]:
        """The run's summary."""
        return self._json(name, "summary.json")

    def rounds(self, name: str) -> pa.Table:
        """One row a round."""
        return pq.read_table(self.path(name) / "rounds.parquet")

    def targets(self, name: str) -> pa.Table:
        """One row a target."""
        return pq.read_table(self.path(name) / "targets.parquet")

    def remove(self, name: str) -> None:
        """Forget a run, so that it is computed anew."""
        shutil.rmtree(self.path(name), ignore_errors=True)
        shutil.rmtree(self.part(name), ignore_errors=True)

    def write(
        self, name: str, spec: dict[str, Any], rounds: pa.Table, targets: pa.Table, summary: dict[str, Any]
    ) -> None:
        """Put a finished run in place: written beside it, synced, then renamed."""
        temporary = self.runs / f"{name}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            temporary.mkdir(parents=True)
            pq.write_table(rounds, temporary / "rounds.parquet", compression="zstd")
            pq.write_table(targets, temporary / "targets.parquet", compression="zstd")
            _write_json(temporary / "spec.json", spec)
            _write_json(temporary / "summary.json", summary)
            for file in FILES:
                _sync(temporary / file)
            if self.path(name).exists() and not self.has(name):
                shutil.rmtree(self.path(name))
            try:
                os.rename(temporary, self.path(name))
            except OSError:
                # Another worker was first; a run's numbers are the same whoever computed them.
                if not self.has(name):
                    raise
            _sync(self.runs)
        except OSError as error:
            raise StorageError(
                f"{self.path(name)}: the run could not be written ({error.strerror or error})"
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(self.part(name), ignore_errors=True)

    def save_checkpoint(self, name: str, state: dict[str, Tensor]) -> None:
        """Replace the checkpoint of a run under way."""
        part = self.part(name)
        temporary = part / f"checkpoint.{uuid.uuid4().hex[:8]}.tmp"
        try:
            part.mkdir(parents=True, exist_ok=True)
            # Tensors that share memory are refused by the format: each is written as its own copy.
            save_file({k: v.detach().clone().contiguous() for k, v in state.items()}, temporary)
            os.replace(temporary, part / "checkpoint.safetensors")
        except (OSError, SafetensorError) as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StorageError(f"{part}: the checkpoint could not be written ({error})") from error

    def load_checkpoint(self, name: str) -> dict[str, Tensor] | None:
        """The checkpoint of a run under way; None if there is none, or none that can be read."""
        path = self.part(name) / "checkpoint.safetensors"
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError):
            log.warning("%s: cannot be read; the run starts anew", path)
            return None

    def _json(self, name: str, file: str) -> dict[str, Any]:
        path = self.path(name) / file
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
        except ValueError:
            raise InputError(f"{path}: is damaged (not JSON); remove the folder to compute the run anew") from None
        if not isinstance(value, dict):
            raise InputError(f"{path}: is damaged (not a JSON object); remove the folder to compute the run anew")
        return value


def _lacking(content: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    """Key paths that are not in nested mappings."""

    def there(path: str) -> bool:
        node: Any = content
        for part in path.split("."):
            if not isinstance(node, Mapping) or part not in node:
                return False
            node = node[part]
        return True

    return [path for path in keys if not there(path)]


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
