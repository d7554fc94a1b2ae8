"""A finished simulation as tables and a summary."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from scapegoat.accounting import rule_delta
from scapegoat.data.splits import MOST_TEST
from scapegoat.devices import described, host
from scapegoat.experiments import routes
from scapegoat.experiments.spec import Spec, describe
from scapegoat.experiments.store import ROUNDS, TARGETS
from scapegoat.federation import Cast, RoundRecord
from scapegoat.federation.record import Truth
from scapegoat.membership import metrics
from scapegoat.membership.assessment import Scored, blind, rate_figures
from scapegoat.membership.metrics import Estimate
from scapegoat.membership.scores import registry

FINAL = "final_margin"
"""The score whose column is `score_final`, as it has always been."""

LISTED_CLIENTS = 100
"""A summary lists so many honest clients, those kept least often first."""


def rounds_table(records: list[RoundRecord]) -> pa.Table:
    """One row per round."""
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


def targets_table(truth: Truth, margins: np.ndarray, scores: Mapping[str, np.ndarray] | None = None) -> pa.Table:
    """One row per target: the truth, what `margins` [rounds, targets] tell, and a column `score_NAME` per score."""
    late = last_half(margins)
    best = best_round(margins, truth.member)
    table = pa.table(
        {
            "target": np.arange(len(truth.member)),
            "record": truth.record,
            "label": truth.label,
            "wrong_label": [None] * len(truth.label) if truth.wrong_label is None else truth.wrong_label,
            "member": truth.member,
            "client": list(truth.client),
            "score_final": margins[-1],
            "score_mean": late.mean(0),
            "called_final": margins[-1] > 0,
            "called_best": margins[best] > 0,
            "called_rate": (late > 0).mean(0),
        },
        schema=TARGETS,
    )
    for name, values in (scores or {}).items():
        if name != FINAL:
            table = table.append_column(f"score_{name}", pa.array(values, pa.float64()))
    return table


def stored_scores(targets: pa.Table) -> dict[str, np.ndarray]:
    """The scores by name that a table of targets holds."""
    names = [name for name in registry.names() if f"score_{name}" in targets.column_names]
    found = {name: targets[f"score_{name}"].to_numpy() for name in names}
    return {FINAL: targets["score_final"].to_numpy().astype(np.float64), **found}


def membership_summary(margins: np.ndarray, member: np.ndarray) -> dict[str, Any]:
    """Every leakage figure with its interval. `*_mean` score by the mean margin over the last half of the rounds.

    A rate that the non-members cannot resolve is null, with the reason.
    """
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
    }
    summary: dict[str, Any] = {"best_round": best, "targets": len(member), "members": int(member.sum())}
    for name, figure in figures.items():
        summary[name] = figure.value
        summary[f"{name}_ci"] = figure.ci
    summary |= rate_figures(final, member) | rate_figures(mean, member, "_mean")
    summary["accuracy_best_threshold"] = metrics.best_threshold_accuracy(final, member)
    return summary


def aimed_summary(spec: Spec, margins: np.ndarray, cast: Cast) -> dict[str, Any]:
    """The figures of the targets that the attack spent its budget on, where it did not spend it on all."""
    aimed = spec.attack.aimed_at(len(cast.member))
    member = cast.member[:aimed]
    if aimed == len(cast.member) or member.all() or not member.any():
        return {}
    return {"aimed": membership_summary(margins[:, :aimed], member)}


def client_accuracies(cast: Cast) -> dict[int, float]:
    """Test accuracy as each honest client would meet it: that of every class, weighted as the client's records are.

    A rule that takes an honest minority for a hostile one shows here, while the mean over all hides it. Classes of
    which there is no test record are left out; empty where there are no classes.
    """
    task, y = cast.model.task, host(cast.test.y)
    if task.labels != "classes" or not len(y):
        return {}
    logits = host(cast.model.logits(cast.server.parameters, cast.test.x))
    score = {c: task.score(logits[y == c], y[y == c]) for c in sorted(set(y.tolist()))}
    found = {}
    for client, shard in enumerate(cast.splits.shards):
        mine = [score[c] for c in cast.dataset.y[shard].tolist() if c in score]
        if mine:
            found[client] = sum(mine) / len(mine)
    return found


def aggregation_summary(
    records: Sequence[RoundRecord], accuracies: Mapping[int, float] | None = None
) -> dict[str, Any]:
    """Who was kept: rates over the rounds in which a malicious update was among the rows.

    `scapegoat_rate`: at least one honest update was discarded while a malicious one was kept.
    `honest_kept_rate` is over all honest updates of those rounds. How the rule treats each honest client is told over
    all rounds: see `honest_clients`. `accuracies` by client, where they are known, stand beside that.
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
    clients = honest_clients(records)
    accuracies = accuracies or {}
    for client in clients:
        if client["client"] in accuracies:
            client["test_accuracy"] = accuracies[client["client"]]
    least = {"honest_least_accuracy": min(accuracies.values())} if accuracies else {}
    return {
        "malicious_rounds": hostile_rounds,
        "malicious_kept_rate": kept / sent if sent else 0.0,
        "honest_kept_rate": honest_kept / honest if honest else 1.0,
        "scapegoat_rate": scapegoats / hostile_rounds if hostile_rounds else 0.0,
        "rejected": rejected,
        "honest_longest_exclusion": max((c["longest_exclusion"] for c in clients), default=0),
        **least,
        "honest_clients": sorted(clients, key=lambda c: (c["kept_rate"], c["client"]))[:LISTED_CLIENTS],
    }


def honest_clients(records: Sequence[RoundRecord]) -> list[dict[str, Any]]:
    """Of each honest client: its updates, the share that was kept, and how many in a row were left out at most."""
    kept: dict[int, list[bool]] = {}
    for record in records:
        for client, hostile, used in zip(record.clients, record.malicious, record.kept, strict=True):
            if not hostile:
                kept.setdefault(client, []).append(used)
    return [
        {
            "client": client,
            "updates": len(used),
            "kept_rate": sum(used) / len(used),
            "longest_exclusion": max((len(list(run)) for was_kept, run in groupby(used) if not was_kept), default=0),
        }
        for client, used in sorted(kept.items())
    ]


def last_epsilon(records: list[RoundRecord]) -> float | None:
    """The epsilon after the last round that noted one (a round without a usable update notes nothing), if finite."""
    noted = [r.defense_notes["epsilon"] for r in records if "epsilon" in r.defense_notes]
    return noted[-1] if noted and np.isfinite(noted[-1]) else None


def versions() -> dict[str, str]:
    """What computed the numbers."""
    found = {name: metadata.version(name) for name in ("scapegoat-fl", "torch", "numpy")}
    return {"python": platform.python_version(), **found}


def summarise(
    spec: Spec,
    cast: Cast,
    records: list[RoundRecord],
    margins: np.ndarray,
    scored: Scored,
    *,
    train_accuracy: float,
    train_majority: float,
    seconds: float,
    privacy: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The JSON summary of a run."""
    tested, accuracy, task = len(cast.test), records[-1].test_accuracy, cast.model.task
    epsilon = last_epsilon(records)
    # There may be many references, and what records alone tell is the audited run's matter.
    known = host(cast.targets.x).numpy()
    seen = None if spec.evaluation.reference else blind(known, cast.truth.label, cast.member)
    return {
        "spec_hash": spec.hash,
        "attack": spec.attack.name,
        "defense": describe(spec.defense),
        "data": spec.data.name,
        "data_notes": [*cast.dataset.notes, *about_test(spec, cast)],
        "model": spec.model.name,
        "task": task.name,
        "metric": task.metric,
        "seed": spec.seed,
        "rounds": len(records),
        "seconds": seconds,
        "test_accuracy": accuracy,
        "test_majority": task.baseline(cast.test.y),
        "test_accuracy_ci": metrics.rate(round((accuracy or 0.0) * tested), tested).ci
        if task.labels == "classes"
        else task.interval(cast.model.logits(cast.server.parameters, cast.test.x), cast.test.y),
        "train_accuracy": train_accuracy,
        "train_majority": train_majority,
        "training_records": sum(len(shard) for shard in cast.splits.shards),
        "parameters": cast.model.d,
        "membership": membership_summary(margins, cast.member) | scored.figures() | aimed_summary(spec, margins, cast),
        "validity": scored.validity(seen),
        "aggregation": aggregation_summary(records, client_accuracies(cast))
        | {"sums_only": cast.server.rule.sums_only}
        | ({} if epsilon is None else {"epsilon": epsilon, "delta": rule_delta(spec.canonical()["defense"])}),
        **({"privacy": privacy} if privacy is not None else {}),
        **protection_summary(spec, records),
        "routes": routes.told(spec.routes, cast.model.routes, cast.model.device),
        **({} if spec.device == "cpu" else {"device": described(cast.model.device)}),
        **({} if spec.precision == "float32" else {"precision": spec.precision}),
        "versions": versions(),
    }


def protection_summary(spec: Spec, records: Sequence[RoundRecord]) -> dict[str, Any]:
    """The protections by name, and the rounds that were trained if a protection ended training; empty without any."""
    if not spec.federation.protect:
        return {}
    trained = sum(record.loss is not None for record in records)
    names = [protection.name for protection in spec.federation.protect]
    return {"protections": names} | ({"trained_rounds": trained} if trained < len(records) else {})


def about_test(spec: Spec, cast: Cast) -> list[str]:
    """Why there are so few test records, or what it would help to take fewer."""
    tested = len(cast.test)
    if spec.data.test is not None:
        return [f"the test accuracy is that of {tested:,} records (data.test), since more make evaluated rounds slower"]
    if tested > MOST_TEST and len(cast.dataset.input_shape) == 3:
        return [f"every evaluated round tests {tested:,} pictures; data.test={MOST_TEST} makes it faster"]
    return []
