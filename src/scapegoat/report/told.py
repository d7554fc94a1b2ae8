"""The targets of runs as the report sees them: every score, the truth, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scapegoat.membership.scoring import midranks
from scapegoat.report.facts import PLAIN_SCORE

NOBODY = -1


@dataclass(frozen=True)
class Told:
    """The targets of one run, or of several: [targets] each. `client` is -1 for who belongs to nobody."""

    member: NDArray[np.bool_]
    label: NDArray[np.int64]
    client: NDArray[np.int64]
    record: NDArray[np.int64]
    scores: dict[str, NDArray[np.float64]]

    def score(self, name: str | None) -> NDArray[np.float64]:
        """A score by name; the final margin where the table does not hold it."""
        return self.scores.get(name or "", self.scores[PLAIN_SCORE])


def told(table: pa.Table) -> Told:
    """The targets of a run's table, with every score that it holds."""
    columns = {name.removeprefix("score_"): name for name in table.column_names if name.startswith("score_")}
    scores = {key: _numbers(table, name) for key, name in columns.items() if key not in ("final", "mean")}
    scores[PLAIN_SCORE] = _numbers(table, "score_final")
    member = table.column("member").to_numpy(zero_copy_only=False).astype(bool)
    label, client, record = (_integers(table, name) for name in ("label", "client", "record"))
    return Told(member, label, client, record, scores)


def pooled(runs: Sequence[Told], score: str | None) -> tuple[NDArray[np.float64], Told]:
    """Runs of several seeds as one: ranks within each run, for scores of different models have no common scale."""
    ranks = np.concatenate([(midranks(run.score(score)) - 0.5) / max(len(run.member), 1) for run in runs])
    fields: dict[str, Any] = {
        name: np.concatenate([getattr(run, name) for run in runs]) for name in ("member", "label", "client", "record")
    }
    return ranks, Told(**fields, scores={PLAIN_SCORE: ranks})


def _numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    return np.asarray(table.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)


def _integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    if name not in table.column_names:
        return np.full(table.num_rows, NOBODY, dtype=np.int64)
    return np.asarray(table.column(name).fill_null(NOBODY).to_numpy(zero_copy_only=False), dtype=np.int64)
