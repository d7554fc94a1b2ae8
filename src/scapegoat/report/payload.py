"""The numbers behind the page's charts, packed into one JSON text that is safe inside a script element."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

from scapegoat.membership.guards import resolvable
from scapegoat.report import grounds
from scapegoat.report.evidence import DEMONSTRATED
from scapegoat.report.measures import ALL, RATES, interval, number, written
from scapegoat.report.model import AggregatedRows, Cell, Curves, Page, PaperFigure, Roc, RunDetail, Study
from scapegoat.report.plan_payload import plan_values

# Bytes of base64 that the rounds of all runs may take together; beyond it every k-th round is drawn.
BUDGET = 4_000_000
_NORM_SCALE = 2000.0
_ABSENT = 65535


def to_json(page: Page, budget: int = BUDGET) -> str:
    """The page's data as JSON without a character that could end the script element it stands in."""
    stride = stride_for(page, budget)
    data = {
        "studies": [_study(study, stride) for study in page.studies],
        "figures": [_figure(figure) for section in page.sections for figure in section.figures],
        "plan": None if page.plan is None else plan_values(page.plan),
        "stride": stride,
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    # JSON may hold these only inside strings, where the escaped form means the same.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def stride_for(page: Page, budget: int) -> int:
    """Draw every so-many-th round, so that the rounds of all runs fit the budget."""
    size = 0
    for run in (run for study in page.studies for cell in study.matrix.cells.values() for run in cell.runs):
        size += 7 * len(run.rows.client) if run.rows is not None else 0
        size += 16 * len(run.curves.round) if run.curves is not None else 0
    return max(1, math.ceil(size * 4 / 3 / budget))


def _study(study: Study, stride: int) -> dict[str, Any]:
    matrix = study.matrix
    start = starting_cell(study)
    leaking = {(a, j.defense, m) for j in study.verdict.judgements for a, m in j.leaking}
    return {
        "attacks": matrix.attacks,
        "defenses": matrix.defenses,
        "baseline": _position(study, matrix.baseline),
        "start": _position(study, start),
        "cells": [[_cell(matrix.cells[a, d], stride, leaking) for d in matrix.defenses] for a in matrix.attacks],
    }


def starting_cell(study: Study) -> tuple[str, str] | None:
    """The cell shown first: the worst attack on the rule that the verdict is about."""
    least = study.verdict.of(study.verdict.least or "")
    if least is not None and least.worst_attack is not None:
        return least.worst_attack, least.defense
    return next((key for key, cell in study.matrix.cells.items() if cell.measures), None)


def _position(study: Study, key: tuple[str, str] | None) -> list[int] | None:
    if key is None:
        return None
    return [study.matrix.attacks.index(key[0]), study.matrix.defenses.index(key[1])]


def _cell(cell: Cell, stride: int, leaking: set[tuple[str, str, str]]) -> dict[str, Any]:
    others = min((run.targets - run.members for run in cell.runs if run.targets), default=0)
    figures = []
    for m in ALL:
        # Summaries of earlier versions have a figure even so.
        if cell.measures and others > 0 and not resolvable(RATES.get(m.key, 1.0), others):
            figures.append([m.label, "not resolvable", ""])
        elif m.key in cell.measures:
            figures.append([m.label, number(cell.measures[m.key].value, 3), interval(cell.measures[m.key], 3)])
    return {
        "reason": cell.reason,
        "figures": figures,
        "above": [m for m in DEMONSTRATED if (cell.attack, cell.defense, m) in leaking],
        "tpr": [
            _plain(cell.measures[k].value) if k in cell.measures and (others < 1 or resolvable(fpr, others)) else None
            for k, fpr in RATES.items()
        ],
        "runs": [_run(run, stride) for run in cell.runs if run.measures],
    }


def _run(run: RunDetail, stride: int) -> dict[str, Any]:
    accuracy = run.measures.get("accuracy_best")
    return {
        "hash": run.hash,
        "seed": run.seed,
        "best": [run.best_round, _plain(accuracy.value)]
        if accuracy is not None and run.best_round is not None
        else None,
        "spec": json.dumps(run.spec, indent=2, default=str),
        "problem": run.problem,
        "scores": _scores(run),
        "grounds": [*grounds.of_run(run.facts), *grounds.checked([run.facts], run.targets - run.members)],
        "curves": _curves(run.curves, stride, run.best_round) if run.curves is not None else None,
        "roc": _roc(run.roc) if run.roc is not None else None,
        "rows": _rows(run.rows, stride) if run.rows is not None else None,
        "fates": [
            [f.client, int(f.malicious), f.rounds, f.kept, f.discarded, f.rejected, f.contested, f.scapegoat]
            for f in run.fates
        ],
        "exposed": [
            [t.target, t.record, t.label, t.client, _plain(t.score), t.mistaken, _plain(t.called_rate)]
            for t in run.exposed
        ],
        "exposure": [[e.client, e.members, e.called] for e in run.exposure],
        "aggregation": {key: _plain(value) for key, value in run.aggregation.items()},
    }


def _scores(run: RunDetail) -> list[list[str]]:
    """A line per score: who can compute it, its figures, and the probability that chance alone shows as much."""
    told, rows = run.facts, []
    for seat, scores in (("client", told.scores), ("server", told.server_scores)):
        for name, figures in scores.items():
            rare = told.rare.get(name)
            others = run.targets - run.members
            unresolved = "not resolvable" if others > 0 and not resolvable(RATES["tpr_at_fpr_001"], others) else "–"
            p = told.chance.get(name)
            rows.append(
                [
                    name,
                    seat,
                    written(figures.get("auc"), 3),
                    written(figures.get("tpr_at_fpr_01"), 3),
                    unresolved if rare is None else written(rare, 3),
                    "–" if p is None else f"{p:.3f}",
                ]
            )
    return rows


def _curves(curves: Curves, stride: int, best: int | None) -> dict[str, str]:
    pick = np.arange(len(curves.round)) % stride == 0
    if stride > 1:
        pick |= np.isfinite(curves.test_accuracy) & (np.arange(len(pick)) == len(pick) - 1)
        pick |= curves.round == (-1 if best is None else best)
    return {
        "round": _pack(curves.round[pick], "<u4"),
        "test": _pack(curves.test_accuracy[pick], "<f4"),
        "accuracy": _pack(curves.attack_accuracy[pick], "<f4"),
        "auc": _pack(curves.attack_auc[pick], "<f4"),
        "loss": _pack(curves.loss[pick], "<f4"),
    }


def _roc(roc: Roc) -> dict[str, Any]:
    return {"fpr": _pack(roc.fpr, "<f4"), "tpr": _pack(roc.tpr, "<f4"), "members": roc.members, "others": roc.others}


def _rows(rows: AggregatedRows, stride: int) -> dict[str, str]:
    """Seven bytes per row: client, angle (pi over 65,534 steps), length as a ratio to the round's median, and flags."""
    counts = np.diff(rows.start)
    chosen = np.arange(len(counts)) % stride == 0
    pick = np.repeat(chosen, counts)
    angle = np.where(np.isfinite(rows.angle), np.clip(rows.angle / np.pi, 0, 1) * (_ABSENT - 1), _ABSENT)
    flags = rows.malicious * 1 + rows.kept * 2 + rows.rejected * 4 + rows.scapegoat * 8
    return {
        "round": _pack(rows.round[chosen], "<u4"),
        "count": _pack(counts[chosen], "<u2"),
        "client": _pack(rows.client[pick], "<u2")
        if rows.client.max(initial=0) < _ABSENT
        else _pack(rows.client[pick], "<u4"),
        "angle": _pack(np.round(angle[pick]), "<u2"),
        "norm": _pack(relative_norm(rows)[pick], "<u2"),
        "flags": _pack(flags[pick], "u1"),
    }


def relative_norm(rows: AggregatedRows) -> np.ndarray:
    """Length over the round's median length (well-formed rows), on a log scale around 32,768; 65,535 if unknown."""
    relative = np.full(len(rows.norm), float(_ABSENT))
    counts = np.diff(rows.start)
    for count in np.unique(counts[counts > 0]):
        at = rows.start[:-1][counts == count][:, None] + np.arange(count)
        norms = rows.norm[at].astype(np.float64)
        usable = np.isfinite(norms) & (norms > 0) & ~rows.rejected[at]
        there = usable.any(axis=1)
        at, norms, usable = at[there], norms[there], usable[there]
        median = np.nanmedian(np.where(usable, norms, np.nan), axis=1, keepdims=True)
        logs = np.log2(np.where(usable, norms, median) / median)
        packed = np.clip(np.round(32768 + _NORM_SCALE * logs), 0, _ABSENT - 1)
        relative[at] = np.where(usable, packed, _ABSENT)
    return relative


def _figure(figure: PaperFigure) -> dict[str, Any]:
    return {
        "x": figure.x_label,
        "y": figure.y_label,
        "range": figure.y_range,
        "panels": [
            {
                "title": panel.title,
                "lines": [
                    {
                        "label": line.label,
                        "x": [_plain(x) for x in line.x],
                        "y": [
                            [_plain(e.value), _plain(e.low), _plain(e.high)] if e is not None else None for e in line.y
                        ],
                        "paper": [_plain(p) for p in line.paper],
                    }
                    for line in panel.lines
                ],
            }
            for panel in figure.panels
        ],
    }


def _pack(values: np.ndarray, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values).astype(np.dtype(dtype)).tobytes()).decode("ascii")


def _plain(value: float | None) -> float | None:
    """A number that JSON can hold, to six digits."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.6g}")
