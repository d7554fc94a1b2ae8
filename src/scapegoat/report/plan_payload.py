"""The numbers behind the plan's chart."""

from __future__ import annotations

from typing import Any

from scapegoat.report.planned import Option, Plan


def plan_values(plan: Plan) -> dict[str, Any]:
    """Options by place, which of them are today's, recommended and on the frontier, and whose rounds are drawn."""
    options = list(plan.options)
    return {
        "budget": plan.budget,
        "today": options.index(plan.today),
        "recommended": options.index(plan.recommended),
        "frontier": [options.index(option) for option in plan.frontier],
        "curves": [options.index(option) for option in _drawn(plan)],
        "options": [_option(option, plan.settled(option)) for option in options],
    }


def _drawn(plan: Plan) -> list[Option]:
    """Early stopping is drawn for today's setting, and for the recommended one at its longest, if that is another."""

    def longest(like: Option) -> Option:
        alike = [o for o in plan.options if (o.rule, o.protect, o.server) == (like.rule, like.protect, like.server)]
        return max(alike, key=lambda o: o.rounds)

    chosen = longest(plan.recommended)
    return [plan.today] if chosen == plan.today else [plan.today, chosen]


def _option(option: Option, settled: bool) -> dict[str, Any]:
    low, high = (option.leakage.low, option.leakage.high) if option.leakage.bounded else (None, None)
    return {
        "label": option.label,
        "name": option.label.rpartition(", ")[0],
        "auc": option.leakage.value,
        "low": low,
        "high": high,
        "attack": option.attack,
        "test": option.test_accuracy,
        "cost": option.cost,
        "complete": settled,
        "stops": [[stop.round, stop.auc, stop.test_accuracy] for stop in option.stops],
    }
