"""Which rule the verdict is about, and whether these runs can tell it from the others at all."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scapegoat.report.evidence import WEIGHED, Evidence, above_zero
from scapegoat.report.measures import DEFENSE_ORDER
from scapegoat.report.model import Judgement, Status

TIE = 0.02
MOST_SEEDS = 100
"""An estimate beyond this says no more than: very many."""
_RANK: dict[Status, int] = {"closed": 0, "undecided": 1, "open": 2, "unjudged": 3}


@dataclass(frozen=True)
class Choice:
    """The rule that the verdict is about. `tied` are the rules that cannot be told apart where that matters.

    `seeds_needed` is how many seeds would tell them apart, by the spread of these; None where nothing needs telling.
    """

    rule: Judgement | None = None
    recommended: str | None = None
    status: Status = "unjudged"
    tied: tuple[str, ...] = ()
    seeds_needed: int | None = None


def choose(
    evidence: Evidence, judgements: Sequence[Judgement], plain: str | None, exposed: Collection[str], tolerance: float
) -> Choice:
    """The cheapest of the rules that leak least; none is recommended that cannot be told from plain averaging.

    `exposed` are the rules under which merely watching gives members away: one that stops that too is preferred.
    """
    judged = [j for j in judgements if j.status != "unjudged"]
    if not judged:
        return Choice()
    averaging = next((j for j in judged if j.defense == plain), None)
    affordable, dear = ([j for j in judged if j.too_costly is costly] for costly in (False, True))
    if averaging is not None and averaging.status == "closed":
        shut = [j for j in affordable if j.status == "closed" and j.defense not in exposed]
        enough = cheapest(shut) if averaging.defense in exposed and shut else averaging
        return Choice(enough, enough.defense, "closed")

    def good(rule: Judgement) -> bool:
        better = averaging is not None and leaks_less(evidence, rule, averaging, len(judged) - 1)
        return rule.status == "closed" or (rule.status == "undecided" and better)

    best = _best(affordable) if affordable else None
    if best is not None and good(best):
        unproved = averaging is not None and averaging.status != "open"
        if averaging is not None and unproved and not leaks_less(evidence, best, averaging, len(judged) - 1):
            return _undecided(evidence, best, averaging, affordable)
        rivals = [j for j in affordable if j is not averaging or j.status != "open"]
        alike = [j for j in rivals if j is best or not leaks_less(evidence, best, j, len(judged) - 1)]
        tied = [j for j in alike if good(j) and j.status == best.status]
        lucky = len(tied) < len(alike) and _one_seed(evidence, alike)
        chosen = cheapest(alike if lucky else tied)
        others = [j for j in (alike if lucky else tied) if j is not chosen]
        needed = max((n for j in others if (n := seeds_to_tell(evidence, chosen, j)) is not None), default=None)
        names = tuple(j.defense for j in others)
        if lucky:
            # Which of them looks good is the luck of one seed.
            return Choice(chosen, None, "undecided", names, needed)
        return Choice(chosen, chosen.defense, chosen.status, names, needed)
    tight = [j for j in dear if good(j)]
    if tight or best is None:
        return Choice(_best(tight or dear), None, "open")
    if best.status == "open":
        return Choice(best, None, "open")
    if averaging is not None and averaging is not best and averaging.status != "open":
        return _undecided(evidence, best, averaging, affordable)
    return Choice(best, None, best.status, seeds_needed=seeds_to_settle(evidence, best, tolerance))


def _undecided(evidence: Evidence, best: Judgement, averaging: Judgement, affordable: Sequence[Judgement]) -> Choice:
    """Plain averaging cannot be told from the rule that leaks least: it is the cheapest, and nothing is recommended."""
    rivals = [j for j in affordable if j is not averaging and j.status != "open"]
    tied = [j for j in rivals if j is best or not leaks_less(evidence, best, j, len(affordable) - 1)]
    needed = seeds_to_tell(evidence, best, averaging)
    return Choice(averaging, None, "undecided", tuple(j.defense for j in tied), needed)


def _one_seed(evidence: Evidence, rules: Sequence[Judgement]) -> bool:
    """Whether one of the rules rests on a single seed."""
    return any(evidence.seeds((attack, rule.defense)) < 2 for rule in rules for attack, _ in rule.worst.values())


def cheapest(rules: Sequence[Judgement]) -> Judgement:
    """The rule that costs least: in points of test accuracy, then under attack (steps of 5), then the simpler one."""
    order = {name: i for i, name in enumerate(DEFENSE_ORDER)}

    def price(j: Judgement) -> tuple[int, int, int, str]:
        points = max(0, round(j.cost.value * 100)) if j.cost is not None else 0
        under_attack = -round((j.under_attack or 0.0) * 20)
        return points, under_attack, order.get(j.defense.split(" ")[0], len(order)), j.defense

    return min(rules, key=price)


def _best(rules: Sequence[Judgement]) -> Judgement:
    """Of the rules that leak least, the one with the better status, then with the higher test accuracy."""
    least = min(map(_excess, rules))
    tied = [j for j in rules if _excess(j) <= least + TIE]
    return min(tied, key=lambda j: (_RANK[j.status], -(j.under_attack or 0.0), _excess(j), j.defense))


def leaks_less(evidence: Evidence, one: Judgement, other: Judgement, rivals: int = 1) -> bool:
    """Whether `one`'s worst attack is demonstrably below `other`'s in accuracy or AUC, and above in neither.

    `rivals` is how many such comparisons are made.
    """
    gaps = [
        evidence.apart(
            (other.worst[m][0], other.defense), (one.worst[m][0], one.defense), m, len(WEIGHED) * max(rivals, 1)
        )
        for m in WEIGHED
        if m in one.worst and m in other.worst
    ]
    return any(map(above_zero, gaps)) and not any(g.high < 0 for g in gaps)


def seeds_to_tell(evidence: Evidence, one: Judgement, other: Judgement) -> int | None:
    """About how many seeds would tell two rules apart: intervals shrink with the square root of their number.

    Rules that seem to differ by less than `TIE` are taken to differ by that: nobody needs to know more exactly.
    """
    needed = []
    for m in WEIGHED:
        if m not in one.worst or m not in other.worst:
            continue
        keys = (other.worst[m][0], other.defense), (one.worst[m][0], one.defense)
        gap = evidence.apart(*keys, m, len(WEIGHED))
        if gap.bounded:
            needed.append(_needed(evidence.seeds(*keys), (gap.high - gap.low) / 2, max(abs(gap.value), TIE)))
    return min(needed, default=None)


def seeds_to_settle(evidence: Evidence, rule: Judgement, tolerance: float) -> int | None:
    """About how many seeds would show whether a rule leaks more than the tolerance."""
    if rule.decided is None or rule.deciding is None or not rule.decided.bounded:
        return None
    distance = max(abs(tolerance - rule.decided.value), TIE)
    half = (rule.decided.high - rule.decided.low) / 2
    return _needed(evidence.seeds((rule.deciding[0], rule.defense)), half, distance)


def _needed(seeds: int, half: float, distance: float) -> int:
    return max(seeds + 1, math.ceil(seeds * (half / distance) ** 2))


def _excess(judgement: Judgement) -> float:
    return judgement.excess.value if judgement.excess is not None else float("inf")
