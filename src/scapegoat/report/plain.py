"""A study as plain values, for programs: the verdict as JSON, runs as rows."""

from __future__ import annotations

import math
from typing import Any

from scapegoat.membership.metrics import Estimate
from scapegoat.report.measures import ALL
from scapegoat.report.model import Judgement, Part, Study, Verdict


def verdict_values(verdict: Verdict) -> dict[str, Any]:
    """A `verdict` as plain values. Rules are named by the page's labels: with the options in which they differ.

    Returns
    -------
    What JSON can hold: status, text, the answers to both questions, and every rule.

    Examples
    --------
    >>> from scapegoat.report import verdict
    >>> verdict_values(verdict([]))["status"]
    'undecided'
    """
    return {
        "status": verdict.status,
        "verdict": verdict.text,
        "decided_by": verdict.decided_by,
        "recommended": verdict.recommended,
        "seeds_needed": verdict.seeds_needed,
        "watching": None if verdict.watching is None else _part(verdict.watching),
        "hostile": _part(verdict.hostile),
        "rules": [_rule(judgement) for judgement in verdict.judgements],
        "caveats": list(verdict.caveats),
    }


def run_rows(study: Study) -> list[dict[str, Any]]:
    """The finished runs of a `study` as plain values.

    Returns
    -------
    One row per run: its labels, its seed, every figure with its interval, and an accounted epsilon.

    Examples
    --------
    >>> import scapegoat as sg
    >>> small = {"data": {"name": "hospital", "records": 700, "features": 40, "classes": 4, "validation": 40},
    ...          "model": {"name": "mlp", "hidden": [8]}, "federation": {"clients": 4, "rounds": 2, "batch_size": 16},
    ...          "attack": {"name": "passive", "targets": 40, "mask": 20}}
    >>> row = run_rows(sg.report.build([sg.run(small)]).studies[0])[0]
    >>> row["attack"], row["seed"], row["auc_low"] <= row["auc"] <= row["auc_high"]
    ('passive', 0, True)
    """
    rows = []
    for (attack, defense), cell in study.matrix.cells.items():
        for run in cell.runs:
            if not run.measures:
                continue
            row: dict[str, Any] = {"attack": attack, "defense": defense, "seed": run.seed, "spec_hash": run.hash}
            for measure in ALL:
                found = run.measures.get(measure.key, Estimate(math.nan))
                low, high = found.drawn if found.bounded else (None, None)
                row[measure.key] = None if math.isnan(found.value) else found.value
                row |= {f"{measure.key}_low": low, f"{measure.key}_high": high}
            rows.append(row | {"epsilon": run.facts.epsilon, "epsilon_lower": run.facts.epsilon_lower})
    return rows


def _part(part: Part) -> dict[str, Any]:
    group = part.group
    return {
        "status": part.status,
        "headline": part.headline,
        "decided_by": part.decided_by,
        **_figure(part.figure),
        "group": None if group is None else {"kind": group.kind, "name": group.name, "members": group.members},
    }


def _rule(judgement: Judgement) -> dict[str, Any]:
    attack, measure = judgement.deciding or (None, None)
    return {
        "defense": judgement.defense,
        "status": judgement.status,
        "decided_by": measure,
        "attack": attack,
        **_figure(judgement.decided),
        "cost": None if judgement.cost is None else judgement.cost.value,
        "epsilon": judgement.epsilon,
        "epsilon_unit": judgement.epsilon_unit or None,
        "epsilon_lower": judgement.epsilon_lower,
        "epsilon_if_gaussian": dict(judgement.epsilon_if_gaussian) or None,
        "epsilon_refuted": judgement.refuted,
        "reason": judgement.reason,
    }


def _figure(estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {"value": None, "ci": None}
    return {"value": estimate.value, "ci": estimate.ci if estimate.bounded else None}
