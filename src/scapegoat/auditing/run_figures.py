"""What one finished run tells the search for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from scapegoat.membership.metrics import Estimate
from scapegoat.report.facts import Facts, facts
from scapegoat.report.watching import undertrained


@dataclass(frozen=True)
class Found:
    """What one run tells: the AUC of its strongest score, the test accuracy, and both by evaluated round.

    By round it is the AUC of that round's margins, the one score that does not look back. `doubt` is why nothing can be
    concluded from it (the model has learnt nothing yet, a guard failed); `unfit` why its references say nothing.
    """

    auc: Estimate
    test_accuracy: float
    by_round: Mapping[int, tuple[float, float]]
    epsilon: float | None = None
    doubt: str = ""
    unfit: str = ""


def found_in(summary: Mapping[str, Any], rounds: pa.Table, spec: Mapping[str, Any] | None = None) -> Found:
    """The figures of a finished run."""
    worst = summary["membership"]["worst_score"]
    low, high = worst["auc_ci"]
    by_round = {}
    if "attack_auc" in rounds.column_names:
        columns = (rounds[name].to_pylist() for name in ("round", "attack_auc", "test_accuracy"))
        by_round = {r + 1: (a, t) for r, a, t in zip(*columns, strict=True) if a is not None and t is not None}
    epsilon = (summary.get("privacy") or {}).get("epsilon")
    return Found(
        Estimate(worst["auc"], low, high),
        summary["test_accuracy"],
        by_round,
        epsilon,
        doubt=doubt_about(facts(summary, spec)),
        unfit=summary["membership"].get("references_reason", ""),
    )


def doubt_about(run: Facts) -> str:
    """Why nothing can be concluded from a run; empty if something can."""
    return run.doubts[0] if run.doubts else undertrained([run])
