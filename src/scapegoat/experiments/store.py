"""Runs on disk: a folder per run, there whole or not at all. Any number of workers write without a lock."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from torch import Tensor

from scapegoat import run_folders
from scapegoat.errors import InputError, StorageError
from scapegoat.experiments import checkpoints
from scapegoat.files import PRIVATE, whole, whole_folder
from scapegoat.run_folders import FILES, PART, Mark, Stored

log = logging.getLogger("scapegoat.experiments")

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
    """The runs in `directory`: `runs/<hash>/` holds a finished one, `runs/<hash>.part/` one that is under way.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     RunStore(folder).finished()
    []
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.runs = self.directory / "runs"

    def path(self, name: str) -> Path:
        """Where a finished run is, or will be."""
        return self.runs / name

    def part(self, name: str) -> Path:
        """Where a run is while it is under way."""
        return self.runs / f"{name}{PART}"

    def has(self, name: str) -> bool:
        """The run is there, whole."""
        return all((self.path(name) / file).is_file() for file in FILES)

    def finished(self) -> list[str]:
        """Names of all finished runs, sorted."""
        return [name for name in self._folders() if self.has(name)]

    def damaged(self) -> list[str]:
        """Names of run folders that are not whole (an older version's, or tampered with)."""
        return [name for name in self._folders() if self.problem(name) is not None]

    def inspect(self, name: str) -> Stored:
        """The run's spec and summary, verified, and what is wrong with them; reads each file once."""
        return run_folders.inspect(self.path(name))

    def problem(self, name: str) -> str | None:
        """What is wrong with a run folder, or None."""
        found = self.inspect(name)
        return found.problem or found.lacking or None

    def mark(self, name: str) -> Mark:
        """How far a run under way is."""
        return run_folders.read_mark(self.part(name))

    def spec(self, name: str) -> dict[str, Any]:
        """The run's canonical spec."""
        return dict(self._whole(name).spec)

    def summary(self, name: str) -> dict[str, Any]:
        """The run's summary."""
        return dict(self._whole(name).summary)

    def rounds(self, name: str) -> pa.Table:
        """One row per round."""
        return run_folders.read_table(self.path(name) / "rounds.parquet")

    def targets(self, name: str) -> pa.Table:
        """One row per target."""
        return run_folders.read_table(self.path(name) / "targets.parquet")

    def remove(self, name: str) -> None:
        """Forget a run, so that it is computed again."""
        shutil.rmtree(self.path(name), ignore_errors=True)
        shutil.rmtree(self.part(name), ignore_errors=True)

    def write(
        self, name: str, spec: dict[str, Any], rounds: pa.Table, targets: pa.Table, summary: dict[str, Any]
    ) -> None:
        """Put a finished run in place: written beside it, sealed, synced, then renamed."""
        try:
            if self.path(name).exists() and not self.has(name):
                shutil.rmtree(self.path(name))
            # Where another worker was first, its run stays: the numbers are the same whoever computed them.
            with whole_folder(self.path(name)) as draft:
                pq.write_table(rounds, draft / "rounds.parquet", compression="zstd")
                with whole(draft / "targets.parquet", mode=PRIVATE, durable=False) as private:
                    pq.write_table(targets, private, compression="zstd")
                _write_json(draft / "spec.json", spec)
                _write_json(draft / "summary.json", run_folders.seal(draft, summary))
            if not self.has(name):
                raise OSError("another writer left a part of it there")
        except OSError as error:
            raise StorageError(
                f"{self.path(name)}: the run could not be written ({error.strerror or error})"
            ) from error
        shutil.rmtree(self.part(name), ignore_errors=True)

    def save_checkpoint(self, name: str, state: dict[str, Tensor]) -> None:
        """Replace the checkpoint of a run under way."""
        path = self._checkpoint(name)
        try:
            checkpoints.save(path, name, state)
        except (OSError, SafetensorError) as error:
            raise StorageError(f"{path.parent}: the checkpoint could not be written ({error})") from error

    def load_checkpoint(self, name: str) -> dict[str, Tensor] | None:
        """The checkpoint of a run under way; None if there is none, or none that can be believed."""
        path = self._checkpoint(name)
        if not path.is_file():
            return None
        try:
            return checkpoints.load(path, name)
        except ValueError as error:
            log.warning("%s: %s; the run starts again", path, error)
            return None

    def _checkpoint(self, name: str) -> Path:
        return self.part(name) / "checkpoint.safetensors"

    def _folders(self) -> list[str]:
        return [path.name for path in run_folders.named(self.runs.iterdir())] if self.runs.is_dir() else []

    def _whole(self, name: str) -> Stored:
        found = self.inspect(name)
        if found.problem:
            raise InputError(f"{self.path(name)}: {found.problem}; remove the folder to compute the run again")
        return found


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
