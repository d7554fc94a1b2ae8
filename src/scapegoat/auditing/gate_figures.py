"""The figures that a policy limits: of each cell over its seeds, by its worst score, or why there is none."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from scapegoat.experiments.run import Result
from scapegoat.membership import epsilon
from scapegoat.report.facts import PLAIN_SCORE, facts
from scapegoat.report.groups import groups_of
from scapegoat.report.told import told
from scapegoat.report.watching import strongest, tried

UNDISTURBED = ("passive", "fedavg")
"""Plain averaging with nobody attacking: what a rule's cost is measured against."""

ROUNDING = 1e-9
GROUPED = {"member", "label", "client", "record", "score_final"}
"""What a table of targets must say for its classes and clients to be looked at."""

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure of one cell over its seeds; without a `value`, `reason` says what is lacking."""

    value: float | None = None
    reason: str = ""
    detail: str = ""


def figure_of(name: str, limit: float, by_seed: Mapping[int, Sequence[Summary]]) -> Figure:
    """The figure over the seeds of a cell, from its worst score."""
    found = []
    for _, summaries in sorted(by_seed.items()):
        of_seed = [_of_run(name, limit, summary) for summary in summaries]
        lacking = next((one for one in of_seed if one.value is None), None)
        if lacking is not None:
            return lacking
        found.append(max(of_seed, key=lambda one: one.value or 0.0))
    if not found:
        return Figure(reason="no run has it")
    if len(found) == 1:
        return found[0]
    values = [one.value for one in found if one.value is not None]
    if name == "epsilon_lower":
        return Figure(max(values), detail=f" (largest of {len(values)} seeds)")
    return Figure(sum(values) / len(values), detail=f" (mean of {len(values)} seeds)")


def exceeds(figure: Figure, limit: float) -> bool:
    """Whether it is known, and above the limit."""
    return figure.value is not None and figure.value > limit + ROUNDING


def exposed_group(limit: float, runs: Sequence[Result]) -> Figure | None:
    """The AUC of the class or client that is most surely above the limit; None if none is.

    As in the verdict: by the strongest score, in intervals that allow for the number of classes and clients. A group is
    held to the low end of its interval, unlike a figure over all targets: the worst of many small groups is above any
    limit by chance.
    """
    variants: dict[str, list[Result]] = defaultdict(list)
    for run in runs:
        if set(run.targets.column_names) >= GROUPED:
            variants[json.dumps(run.spec.canonical()["attack"], sort_keys=True)].append(run)
    above = []
    for alike in variants.values():
        score = strongest(tried([facts(run.summary, run.spec.canonical()) for run in alike]))
        targets = [told(run.targets) for run in alike]
        used = score if score is not None and all(score in known.scores for known in targets) else PLAIN_SCORE
        above += [(group, used) for group in groups_of(targets, used) if group.auc.low > limit + ROUNDING]
    if not above:
        return None
    group, score = max(above, key=lambda found: (found[0].auc.low, found[0].auc.value))
    low, high = group.auc.ci
    return Figure(group.auc.value, detail=f" [{low:.3f}, {high:.3f}] within {group.label} by {score}")


def _of_run(name: str, limit: float, summary: Summary) -> Figure:
    membership = summary.get("membership") or {}
    if name == "epsilon_lower":
        return _epsilon(limit, membership)
    scores = of_clients(membership.get("scores") or {})
    if not scores:
        return Figure(reason="the run has no scores; compute it again with this version")
    if name == "auc":
        worst = membership.get("worst_score") or {}
        return _estimate(worst.get("auc"), worst.get("auc_ci"), str(worst.get("name")))
    known = {score: figures for score, figures in scores.items() if is_number(figures.get(name))}
    if len(known) < len(scores):
        lacking = next(figures for score, figures in scores.items() if score not in known)
        return Figure(reason=str(lacking.get(f"{name}_reason") or "a score lacks it"))
    worst_name = max(known, key=lambda score: known[score][name])
    return _estimate(known[worst_name][name], known[worst_name].get(f"{name}_ci"), worst_name)


def of_clients(scores: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scores of a client's seat, where there are any: no rule changes what the server sees."""
    mine = {name: figures for name, figures in scores.items() if figures.get("seat", "client") == "client"}
    return mine or scores


def _epsilon(limit: float, membership: Mapping[str, Any]) -> Figure:
    value, reachable = membership.get("epsilon_lower"), _reachable(membership)
    if not is_number(value):
        return Figure(reason=str(membership.get("epsilon_lower_reason") or "the run has no bound"))
    if value > limit:
        return Figure(float(value))
    # Without this, few targets would keep any limit: they refute nothing, however much leaks.
    if reachable is None:
        return Figure(reason="the run does not say what its targets could show; compute it again with this version")
    if reachable <= limit:
        return Figure(reason=f"its targets can show {reachable:.2f} at most, however much leaks; more attack.targets")
    return Figure(float(value))


def _reachable(membership: Mapping[str, Any]) -> float | None:
    """The bound that perfect leakage would have given, from the same targets by as many scores."""
    stored = membership.get("epsilon_reachable")
    if is_number(stored):
        return float(stored)
    # Runs of an earlier version do not have it; those that list their bounds guessed by the same rules as today's.
    targets, members = membership.get("targets"), membership.get("members")
    tried = (membership.get("worst_score") or {}).get("tried")
    if "epsilon_bounds" not in membership or not (is_number(targets) and is_number(members) and is_number(tried)):
        return None
    return epsilon.reachable(int(members), int(targets - members), confidence=epsilon.share(int(tried)))


def _estimate(value: Any, interval: Any, score: str) -> Figure:
    if not is_number(value) or not isinstance(interval, list | tuple) or not all(map(is_number, interval)):
        return Figure(reason=f"it has no interval by {score}")
    low, high = interval
    return Figure(float(value), detail=f" [{low:.3f}, {high:.3f}] by {score}")


def cost_of(
    plain: Mapping[int, Sequence[Summary]], ruled: Mapping[int, Sequence[Summary]], seeds: Sequence[int]
) -> Figure:
    """Test accuracy lost against plain averaging while nobody attacks, over the seeds."""
    lost = []
    for seed in seeds:
        before = [s.get("test_accuracy") for s in plain.get(seed, ())]
        after = [s.get("test_accuracy") for s in ruled.get(seed, ())]
        if not before or not after or not all(map(is_number, [*before, *after])):
            lacking = f"{UNDISTURBED[0]} under {UNDISTURBED[1]} and under the rule"
            return Figure(reason=f"seed {seed} has no test accuracy of {lacking}")
        lost.append(max(filter(is_number, before)) - min(filter(is_number, after)))
    return Figure(sum(lost) / len(lost)) if lost else Figure(reason="no run has it")


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
