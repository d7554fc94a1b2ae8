"""A finished simulation as tables and a summary."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import numpy as np
import pyarrow as pa

from scapegoat.experiments.spec import Spec, describe
from scapegoat.experiments.store import ROUNDS, TARGETS
from scapegoat.federation import RoundRecord, Simulation
from scapegoat.membership import metrics
from scapegoat.membership.metrics import Estimate


def rounds_table(records: list[RoundRecord]) -> pa.Table:
    """One row a round."""
    rows = [r.as_dict() for r in records]
    for row in rows:
        for notes in ("attack_notes", "defense_notes"):
            row[notes] = sorted(row[notes].items())
    return pa.Table.from_pylist(rows, schema=ROUNDS)


def last_half(margins: np.ndarray) -> np.ndarray:
    """The margins of the last half of the rounds."""
    return margins[len(margins) // 2 :]


def best_round(margins: np.ndarray, member: np.ndarray) -> int:
    """The first round with the largest accuracy: the paper's headline, an oracle's choice."""
    return int(np.argmax(((margins > 0) == member).mean(1)))


def targets_table(simulation: Simulation, margins: np.ndarray) -> pa.Table:
    """One row a target."""
    splits, order = simulation.splits, simulation.target_order
    rows = splits.targets[order].numpy()
    members = len(splits.members)
    owner = [int(splits.member_clients[i]) if i < members else None for i in order.tolist()]
    late = last_half(margins)
    best = best_round(margins, simulation.member)
    return pa.table(
        {
            "target": np.arange(len(rows)),
            "record": rows,
            "label": simulation.targets.y.numpy(),
            "wrong_label": splits.wrong_labels[order].numpy(),
            "member": simulation.member,
            "client": owner,
            "score_final": margins[-1],
            "score_mean": late.mean(0),
            "called_final": margins[-1] > 0,
            "called_best": margins[best] > 0,
            "called_rate": (late > 0).mean(0),
        },
        schema=TARGETS,
    )


def membership_summary(margins: np.ndarray, member: np.ndarray) -> dict[str, Any]:
    """Every leakage figure with its interval. `*_mean` score by the mean margin over the last half of the rounds."""
    best = best_round(margins, member)
    at_best, at_end = metrics.calls(margins[best] > 0, member), metrics.calls(margins[-1] > 0, member)
    final, mean = margins[-1], last_half(margins).mean(0)
    figures: dict[str, Estimate] = {
        "accuracy_best": at_best.accuracy,
        "accuracy_final": at_end.accuracy,
        "precision": at_best.precision,
        "recall": at_best.recall,
        "advantage": at_best.advantage,
        "auc": metrics.auc(final, member),
        "auc_mean": metrics.auc(mean, member),
        "tpr_at_fpr_01": metrics.tpr_at_fpr(final, member, 0.01),
        "tpr_at_fpr_01_mean": metrics.tpr_at_fpr(mean, member, 0.01),
        "tpr_at_fpr_001": metrics.tpr_at_fpr(final, member, 0.001),
        "tpr_at_fpr_001_mean": metrics.tpr_at_fpr(mean, member, 0.001),
    }
    summary: dict[str, Any] = {"best_round": best, "targets": len(member), "members": int(member.sum())}
    for name, figure in figures.items():
        summary[name] = figure.value
        summary[f"{name}_ci"] = figure.ci
    summary["accuracy_best_threshold"] = metrics.best_threshold_accuracy(final, member)
    return summary


def aggregation_summary(records: list[RoundRecord]) -> dict[str, Any]:
    """Who was kept: rates over the rounds in which a malicious update was among the rows.

    `scapegoat_rate`: at least one honest update was discarded while a malicious one was kept.
    `honest_kept_rate` is over all honest updates of those rounds.
    """
    sent = kept = scapegoats = hostile_rounds = honest = honest_kept = rejected = 0
    for record in records:
        hostile, used = np.array(record.malicious, dtype=bool), np.array(record.kept, dtype=bool)
        rejected += sum(record.rejected)
        if not hostile.any():
            continue
        hostile_rounds += 1
        sent += int(hostile.sum())
        kept += int((hostile & used).sum())
        honest += int((~hostile).sum())
        honest_kept += int((~hostile & used).sum())
        scapegoats += bool((hostile & used).any() and (~hostile & ~used).any())
    return {
        "malicious_rounds": hostile_rounds,
        "malicious_kept_rate": kept / sent if sent else 0.0,
        "honest_kept_rate": honest_kept / honest if honest else 1.0,
        "scapegoat_rate": scapegoats / hostile_rounds if hostile_rounds else 0.0,
        "rejected": rejected,
    }


def last_epsilon(records: list[RoundRecord]) -> float | None:
    """The epsilon after the last round that noted one (a round without a usable update notes nothing), if finite."""
    noted = [r.defense_notes["epsilon"] for r in records if "epsilon" in r.defense_notes]
    return noted[-1] if noted and np.isfinite(noted[-1]) else None


def versions() -> dict[str, str]:
    """What computed the numbers."""
    found = {name: metadata.version(name) for name in ("scapegoat-fl", "torch", "numpy")}
    return {"python": platform.python_version(), **found}


def summarise(spec: Spec, simulation: Simulation, seconds: float) -> dict[str, Any]:
    """The JSON summary of a run."""
    last = simulation.records[-1]
    margins = simulation.margins[: simulation.round]
    tested = len(simulation.test)
    epsilon = last_epsilon(simulation.records)
    return {
        "spec_hash": spec.hash,
        "attack": spec.attack.name,
        "defense": describe(spec.defense),
        "data": spec.data.name,
        "model": spec.model.name,
        "seed": spec.seed,
        "rounds": simulation.round,
        "seconds": seconds,
        "test_accuracy": last.test_accuracy,
        "test_accuracy_ci": metrics.rate(round((last.test_accuracy or 0.0) * tested), tested).ci,
        "train_accuracy": simulation.train_accuracy(),
        "parameters": simulation.model.d,
        "membership": membership_summary(margins, simulation.member),
        "aggregation": aggregation_summary(simulation.records) | ({} if epsilon is None else {"epsilon": epsilon}),
        "versions": versions(),
    }
