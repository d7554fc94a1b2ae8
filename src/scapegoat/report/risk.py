"""What leakage means for the people in the data. Three kinds of statement are kept apart, each with where it is from.

- *Measured*: counts over the audit's own targets, whose membership is known, and their intervals.
- *Declared*: assumptions that no run can check: how rare members are among those an adversary would try (`PRIORS`), how
  many false alarms it puts up with (`RATE`).
- *Combined*: what follows from both: how sure a call is, how many records are found, how sure an adversary is of whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import special

from scapegoat.errors import ScapegoatError
from scapegoat.membership.exposure import PRIORS, AtPrior, at_priors, posteriors
from scapegoat.membership.guards import resolvable
from scapegoat.membership.metrics import LEVEL, Estimate, rate, tpr_at_fpr
from scapegoat.report.estimate import over_seeds
from scapegoat.report.groups import groups_of
from scapegoat.report.model import Group, RunDetail, Study
from scapegoat.report.told import NOBODY, Told
from scapegoat.report.verdict import name_of

RATE = 0.01
"""The declared share of non-members that may be accused."""
LISTED = 10
"""Most exposed records that are shown."""

Seat = Literal["watching", "hostile", "server"]


@dataclass(frozen=True)
class Record:
    """A member of the data, by its row, and how sure an adversary may be that it is one: before, and by prior."""

    record: int
    label: int
    client: int | None
    even: float
    by_prior: tuple[float, ...]


@dataclass(frozen=True)
class Risk:
    """What one kind of adversary learns, by the score of `tried` that finds most members at 1% false alarms.

    Measured: `found` of `members` are called members where `false` of `others` are too, by a threshold that lets 1% of
    these through; `share` and `alarms` are the two rates, in exact intervals that hold together and allow for the
    scores tried; `groups` by class and client, by the score with the largest AUC, `ranked_by`.
    Combined: `calls` by prior, `exposed` of `records`, `surest`. Without enough non-members only `reason` is said.
    """

    seat: Seat
    attack: str
    defense: str
    score: str
    tried: int
    seeds: int
    members: int
    others: int
    found: int = 0
    false: int = 0
    share: Estimate | None = None
    alarms: Estimate | None = None
    calls: tuple[AtPrior, ...] = ()
    records: int | None = None
    exposed: Estimate | None = None
    groups: tuple[Group, ...] = ()
    ranked_by: str = ""
    surest: tuple[Record, ...] = ()
    reason: str = ""


def risks(study: Study) -> tuple[Risk, ...]:
    """What is learnt by whoever watches, by the worst hostile participant, and by the server, under the chosen rule.

    The rule is the verdict's: the one recommended, or the one that it is about, or plain averaging.
    """
    rule = study.verdict.recommended or study.verdict.least or (study.matrix.baseline or ("", ""))[1]
    cells = {attack: _usable(study, attack, rule) for attack in study.matrix.attacks}
    watching = next((attack for attack in cells if attack.split(" ")[0] == "passive"), None)
    found: list[Risk] = []
    if watching is not None and cells[watching]:
        found.append(_risk("watching", watching, rule, cells[watching]))
    hostile = {
        attack: max(_aucs(runs, "client").values())
        for attack, runs in cells.items()
        if attack != watching and runs and _aucs(runs, "client")
    }
    if hostile:
        worst = max(hostile, key=lambda attack: hostile[attack])
        found.append(_risk("hostile", worst, rule, cells[worst]))
    seen = next((attack for attack in (watching, *cells) if attack and _aucs(cells[attack], "server")), None)
    if seen is not None:
        found.append(_risk("server", seen, rule, cells[seen]))
    return tuple(found)


def _usable(study: Study, attack: str, defense: str) -> list[RunDetail]:
    cell = study.matrix.cells.get((attack, defense))
    return [run for run in cell.runs if run.measures and run.told is not None] if cell is not None else []


def _aucs(runs: Sequence[RunDetail], seat: str) -> dict[str, float]:
    """The mean AUC of every score of a seat that all runs have, targets included."""
    listed = [(run.facts.scores if seat == "client" else run.facts.server_scores) for run in runs]
    names = [name for name in (listed[0] if listed else {}) if all("auc" in scores.get(name, {}) for scores in listed)]
    told = [run.told for run in runs if run.told is not None]
    names = [name for name in names if all(name in targets.scores for targets in told)]
    return {name: float(np.mean([scores[name]["auc"].value for scores in listed])) for name in names}


def _risk(seat: Seat, attack: str, defense: str, runs: Sequence[RunDetail]) -> Risk:
    aucs = _aucs(runs, "server" if seat == "server" else "client")
    strongest = max(aucs, key=lambda name: aucs[name], default="final_margin")
    told = [run.told for run in runs if run.told is not None]
    members, others = (sum(int((targets.member == kind).sum()) for targets in told) for kind in (True, False))
    bare = Risk(seat, attack, defense, strongest, max(len(aucs), 1), len(told), members, others, ranked_by=strongest)
    least = min(int((~targets.member).sum()) for targets in told)
    if not resolvable(RATE, least):
        reason = f"{least} non-members cannot show a false alarm rate of {RATE:.0%}: it takes {round(1 / RATE)}"
        return Risk(**{**vars(bare), "reason": reason})
    level = 1 - (1 - LEVEL) / bare.tried
    by_score = {name: [_called(t, name) for t in told] for name in aucs or [strongest]}
    score = max(by_score, key=lambda name: (sum(found for found, _ in by_score[name]), aucs.get(name, 0.0)))
    counts = by_score[score]
    found, false = sum(c[0] for c in counts), sum(c[1] for c in counts)
    both = 1 - (1 - level) / 2
    share = over_seeds([rate(c[0], int(t.member.sum()), both) for c, t in zip(counts, told, strict=True)])
    alarms = over_seeds([rate(c[1], int((~t.member).sum()), both) for c, t in zip(counts, told, strict=True)])
    held = [run.facts.records for run in runs if run.facts.records is not None]
    records = round(float(np.mean(held))) if len(held) == len(told) else None
    exposed = None
    if records is not None:
        exposed = Estimate(share.value * records, share.low * records, share.high * records)
    parts: dict[str, Any] = {
        "score": score,
        "found": found,
        "false": false,
        "share": share,
        "alarms": alarms,
        "calls": tuple(at_priors(found, members, false, others, level=level)),
        "records": records,
        "exposed": exposed,
        "groups": groups_of(told, strongest),
        "surest": _surest(told[0], score),
    }
    return Risk(**{**vars(bare), **parts})


def _called(told: Told, score: str) -> tuple[int, int]:
    """Members and non-members above the threshold that lets at most `RATE` of the non-members through."""
    values = np.where(np.isnan(told.score(score)), -np.inf, told.score(score))
    outside = np.sort(values[~told.member])[::-1]
    threshold = outside[min(int(np.floor(RATE * len(outside) + 1e-9)), len(outside) - 1)]
    found = round(tpr_at_fpr(values, told.member, RATE).value * int(told.member.sum()))
    return found, int((outside > threshold).sum())


def _surest(told: Told, score: str) -> tuple[Record, ...]:
    """The members that an adversary is surest of, each judged by a curve that was fitted without it."""
    sure = posteriors(told.score(score), told.member)
    values = np.where(np.isnan(told.score(score)), -np.inf, told.score(score))
    order = [int(i) for i in np.lexsort((-values, -sure)) if told.member[i]][:LISTED]
    odds = special.logit(sure.clip(1e-12, 1 - 1e-12))
    return tuple(
        Record(
            record=int(told.record[i]),
            label=int(told.label[i]),
            client=None if told.client[i] == NOBODY else int(told.client[i]),
            even=float(sure[i]),
            by_prior=tuple(float(special.expit(odds[i] + special.logit(prior))) for prior in PRIORS),
        )
        for i in order
    )


def sums_only(study: Study) -> dict[str, bool | None]:
    """By rule, whether secure aggregation leaves it what it needs; None of a rule that is not known here."""
    found: dict[str, bool | None] = {}
    for (_, defense), cell in study.matrix.cells.items():
        for run in cell.runs:
            if run.facts.sums_only is not None:
                found[defense] = run.facts.sums_only
            elif defense not in found and run.spec.get("defense"):
                found[defense] = _needs_sums_only(run.spec["defense"])
    return found


def _needs_sums_only(defense: Any) -> bool | None:
    """Of a run whose summary does not say, as those of earlier versions."""
    # A store may be anybody's: code that it names is not imported to read it.
    if any(":" in name_of(part) for part in (defense if isinstance(defense, list) else [defense])):
        return None
    from scapegoat import aggregation  # torch takes seconds to import, and no other part of a report needs it

    try:
        return aggregation.parse(defense).sums_only
    except ScapegoatError:
        return None


def risk_values(study: Study) -> dict[str, Any]:
    """What a `study` says about risk as plain values: measured, declared, and what follows from both.

    Returns
    -------
    The declared priors, a mapping per adversary, and by rule whether secure aggregation leaves it what it needs.

    Examples
    --------
    >>> import scapegoat as sg
    >>> small = {"data": {"name": "hospital", "records": 700, "features": 40, "classes": 4, "validation": 40},
    ...          "model": {"name": "mlp", "hidden": [8]}, "federation": {"clients": 4, "rounds": 2, "batch_size": 16},
    ...          "attack": {"name": "passive", "targets": 40, "mask": 20}}
    >>> values = risk_values(sg.report.build([sg.run(small)]).studies[0])
    >>> [adversary["seat"] for adversary in values["adversaries"]], values["secure_aggregation"]
    (['watching'], {'fedavg': True})
    """
    return {
        "declared": {"priors": list(PRIORS), "false_alarms": RATE},
        "adversaries": [_values(risk) for risk in risks(study)],
        "secure_aggregation": sums_only(study),
    }


def _values(risk: Risk) -> dict[str, Any]:
    def written(estimate: Estimate | None) -> dict[str, Any]:
        return {"value": None, "ci": None} if estimate is None else {"value": estimate.value, "ci": estimate.ci}

    return {
        "seat": risk.seat,
        "attack": risk.attack,
        "defense": risk.defense,
        "measured": {
            "score": risk.score,
            "groups_by": risk.ranked_by,
            "scores_tried": risk.tried,
            "runs": risk.seeds,
            "members": risk.members,
            "others": risk.others,
            "found": risk.found,
            "false": risk.false,
            "share": written(risk.share),
            "alarms": written(risk.alarms),
            "reason": risk.reason,
            "groups": [
                {"kind": g.kind, "name": g.name, "members": g.members, "others": g.others, "auc": written(g.auc)}
                for g in risk.groups
            ],
        },
        "combined": {
            "by_prior": [
                {"prior": call.prior, "precision": written(call.precision), "lift": written(call.lift)}
                for call in risk.calls
            ],
            "records": risk.records,
            "exposed": written(risk.exposed),
            "surest": [
                {"record": r.record, "label": r.label, "client": r.client, "posterior": r.even} for r in risk.surest
            ],
        },
    }
