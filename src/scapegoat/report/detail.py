"""One run in depth: curves, ROC, who was discarded, and which targets are exposed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from scapegoat.report.facts import facts
from scapegoat.report.measures import from_summary
from scapegoat.report.model import (
    AggregatedRows,
    ClientExposure,
    ClientFate,
    Curves,
    ExposedTarget,
    Flags,
    Floats,
    Integers,
    Roc,
    RunDetail,
)
from scapegoat.report.runs import Run
from scapegoat.report.told import told

EXPOSED = 20
# What reading and drawing a table raises that holds something else than we write.
_DAMAGE = (OSError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError)
ROC_POINTS = 600


def detail(run: Run, tables: bool = True) -> RunDetail:
    """Everything that the page shows of a run. A table that cannot be read becomes the detail's `problem`.

    Without `tables` only the summary is used.
    """
    membership = run.summary.get("membership") or {}
    parts: dict[str, Any] = {}
    problem = run.problem
    if tables:
        for part in (_of_rounds, _of_targets):
            try:
                parts.update(part(run))
            except (*_DAMAGE, pa.ArrowException) as error:
                first = (str(error).splitlines() or [""])[0]
                problem = problem or f"details damaged: {first or type(error).__name__}"
    return RunDetail(
        hash=run.hash,
        seed=int(run.spec.get("seed", run.summary.get("seed", 0))),
        spec=run.spec,
        best_round=membership.get("best_round"),
        seconds=run.summary.get("seconds"),
        measures=from_summary(run.summary),
        facts=facts(run.summary, run.spec),
        targets=int(membership.get("targets") or 0),
        members=int(membership.get("members") or 0),
        aggregation=_numbers(run.summary.get("aggregation") or {}),
        problem=problem,
        **parts,
    )


def _of_rounds(run: Run) -> dict[str, Any]:
    table = run.rounds()
    if table is None:
        return {}
    # Of a strategy that does not say whom it kept there is nothing to show.
    disclosed = (run.summary.get("aggregation") or {}).get("malicious_kept_rate", 0.0) is not None
    rows = rows_of(table) if disclosed and "clients" in table.column_names else None
    return {"curves": curves_of(table), "rows": rows, "fates": fates_of(rows) if rows is not None else ()}


def _of_targets(run: Run) -> dict[str, Any]:
    table = run.targets()
    if table is None:
        return {}
    member = _flags(table, "member")
    return {
        "roc": roc_of(_floats(table, "score_final"), member),
        "exposed": exposed_of(table, member),
        "exposure": exposure_of(table, member),
        "told": told(table),
    }


def curves_of(table: pa.Table) -> Curves:
    """The curves by round; a column that is absent is NaN throughout."""
    return Curves(
        round=_integers(table, "round"),
        test_accuracy=_floats(table, "test_accuracy"),
        attack_accuracy=_floats(table, "attack_accuracy"),
        attack_auc=_floats(table, "attack_auc"),
        loss=_floats(table, "loss"),
    )


def rows_of(table: pa.Table) -> AggregatedRows:
    """The aggregated rows of every round, flat."""
    lists = table.column("clients").combine_chunks()
    start = np.concatenate([[0], np.cumsum(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))]).astype(
        np.int64
    )
    flat = {
        name: table.column(name).combine_chunks().flatten() for name in ("clients", "malicious", "kept", "rejected")
    }
    for name in ("mean_angle", "norm"):
        if name in table.column_names:
            flat[name] = table.column(name).combine_chunks().flatten()
    count = int(start[-1])
    short = [name for name, values in flat.items() if len(values) != count]
    if short:
        raise ValueError(f"{', '.join(short)} not aligned with clients")
    malicious, kept, rejected = (
        flat[name].fill_null(False).to_numpy(zero_copy_only=False).astype(bool)
        for name in ("malicious", "kept", "rejected")
    )
    angle = _or_nan(flat.get("mean_angle"), count)
    # A round's sum over its own rows; reduceat would read the next round's first row where a round is empty.
    tally = np.concatenate([[0], np.cumsum(malicious & kept)])
    hostile_kept = np.repeat(tally[start[1:]] > tally[start[:-1]], np.diff(start))
    return AggregatedRows(
        round=_integers(table, "round"),
        start=start,
        client=flat["clients"].to_numpy(zero_copy_only=False).astype(np.int64),
        malicious=malicious,
        kept=kept,
        rejected=rejected,
        scapegoat=~malicious & ~kept & ~rejected & hostile_kept,
        angle=np.where((angle >= 0) & (angle <= np.pi + 1e-6), angle, np.nan).astype(np.float32),
        norm=_or_nan(flat.get("norm"), count),
    )


def fates_of(rows: AggregatedRows) -> tuple[ClientFate, ...]:
    """What became of each client's updates, by client id."""
    tally = np.concatenate([[0], np.cumsum(rows.malicious)])
    contested = np.repeat(tally[rows.start[1:]] > tally[rows.start[:-1]], np.diff(rows.start))
    fates = []
    for client in np.unique(rows.client):
        own = rows.client == client
        fates.append(
            ClientFate(
                client=int(client),
                malicious=bool(rows.malicious[own].any()),
                rounds=int(own.sum()),
                kept=int(rows.kept[own].sum()),
                discarded=int((~rows.kept & ~rows.rejected)[own].sum()),
                rejected=int(rows.rejected[own].sum()),
                contested=int(contested[own].sum()),
                scapegoat=int(rows.scapegoat[own].sum()),
            )
        )
    return tuple(fates)


def roc_of(scores: Floats, member: Flags) -> Roc | None:
    """Corners of the ROC: from everything above the highest score to everything above the lowest, ties in one step."""
    members, others = int(member.sum()), int((~member).sum())
    if not members or not others:
        return None
    ranked = _rankable(scores)
    order = np.argsort(-ranked, kind="stable")
    last_of_tie = np.append(ranked[order][1:] != ranked[order][:-1], True)
    tpr = np.concatenate([[0], np.cumsum(member[order])[last_of_tie] / members])
    fpr = np.concatenate([[0], np.cumsum(~member[order])[last_of_tie] / others])
    # Points inside a straight run draw nothing.
    inner = (np.diff(tpr)[:-1] * np.diff(fpr)[1:]) != (np.diff(tpr)[1:] * np.diff(fpr)[:-1])
    corner = np.concatenate([[True], inner, [True]])
    tpr, fpr = tpr[corner], fpr[corner]
    if len(fpr) > ROC_POINTS:
        # Even spacing on the log axis that the page draws: keep the low end whole.
        pick = np.unique(np.geomspace(1, len(fpr), ROC_POINTS).astype(int) - 1)
        tpr, fpr = tpr[pick], fpr[pick]
    return Roc(fpr.astype(np.float32), tpr.astype(np.float32), members, others)


def exposed_of(table: pa.Table, member: Flags) -> tuple[ExposedTarget, ...]:
    """The members that the attacker sees most plainly, at most `EXPOSED`."""
    score = _rankable(_floats(table, "score_final"))
    outside = np.sort(score[~member])
    mistaken = len(outside) - np.searchsorted(outside, score, side="left")
    rate = np.nan_to_num(_floats(table, "called_rate"))
    mean = _rankable(_floats(table, "score_mean"))
    order = np.lexsort((-mean, -rate, mistaken))
    clients = table.column("client").to_pylist() if "client" in table.column_names else [None] * len(score)
    record, label, target = (_integers(table, name) for name in ("record", "label", "target"))
    return tuple(
        ExposedTarget(
            target=int(target[i]),
            record=int(record[i]),
            label=int(label[i]),
            client=clients[i],
            score=float(score[i]),
            mistaken=int(mistaken[i]),
            called_rate=float(rate[i]),
        )
        for i in order
        if member[i]
    )[:EXPOSED]


def exposure_of(table: pa.Table, member: Flags) -> tuple[ClientExposure, ...]:
    """By client: how many of its targets were called members in the best round."""
    if "client" not in table.column_names or "called_best" not in table.column_names:
        return ()
    called = _flags(table, "called_best")
    counts: dict[int, list[int]] = {}
    for i, client in enumerate(table.column("client").to_pylist()):
        if client is not None and member[i]:
            pair = counts.setdefault(int(client), [0, 0])
            pair[0] += 1
            pair[1] += int(called[i])
    return tuple(ClientExposure(client, *counts[client]) for client in sorted(counts))


def _rankable(scores: Floats) -> Floats:
    """A NaN says nothing, so it ranks lowest."""
    return np.nan_to_num(scores, nan=-np.inf, posinf=np.inf, neginf=-np.inf)


def _floats(table: pa.Table, name: str) -> Floats:
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan, dtype=np.float32)
    return _or_nan(table.column(name).combine_chunks(), table.num_rows)


def _or_nan(values: pa.Array | None, count: int) -> Floats:
    if values is None:
        return np.full(count, np.nan, dtype=np.float32)
    return np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float32)


def _integers(table: pa.Table, name: str) -> Integers:
    return np.asarray(table.column(name).combine_chunks().to_numpy(zero_copy_only=False), dtype=np.int64)


def _flags(table: pa.Table, name: str) -> Flags:
    return np.asarray(
        table.column(name).combine_chunks().fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_
    )


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(v) for key, v in values.items() if isinstance(v, int | float)}
