"""From runs to a plan: which seeds count, what is asked for, and what is said where no plan can be searched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from scapegoat.auditing.planner import Planner
from scapegoat.experiments import Spec, parse
from scapegoat.experiments.executors import Failure, Outcome, named

ATTACKS = ("passive", "fedpoisonmia")
SEEDS = (0, 1, 2)
GENTLE = 0.55


def matrix() -> dict[str, Spec]:
    specs = [
        parse({"seed": s, "attack": {"name": a}, "defense": {"name": d}, "federation": {"rounds": 20}})
        for s in SEEDS
        for d in ("fedavg", "atm")
        for a in ATTACKS
    ]
    return named(specs)


def figure(spec: Spec) -> tuple[float, float]:
    """AUC and test accuracy: plain steps of the server hide members, and cost a point; seeds differ by ten."""
    plainly = spec.federation.server.optimizer == "sgd"
    return (GENTLE if plainly else 0.9), 0.6 + 0.1 * spec.seed - (0.01 if plainly else 0.0)


class Made:
    """A store and an executor of made-up runs."""

    def __init__(
        self,
        told: Callable[[Spec], tuple[float, float]] = figure,
        fails: Callable[[Spec], bool] = lambda spec: False,
        reasons: tuple[str, ...] = (),
    ) -> None:
        self.told, self.fails, self.reasons = told, fails, reasons
        self.outcome, self.specs, self.asked = Outcome(), dict[str, Spec](), list[str]()

    def go(self, specs: Iterable[Spec]) -> None:
        for name, spec in named(specs).items():
            self.asked.append(name)
            self.specs[name] = spec
            if self.fails(spec):
                self.outcome.failures[name] = Failure(name, spec, "made up")
                continue
            auc, test = self.told(spec)
            self.outcome.summaries[name] = {
                "attack": spec.attack.name,
                "membership": {"worst_score": {"auc": auc, "auc_ci": [auc - 0.03, auc + 0.03]}},
                "test_accuracy": test,
                "validity": {"reasons": list(self.reasons)},
            }

    def rounds(self, name: str) -> pa.Table:
        return pa.table({"round": [0]})

    def spec(self, name: str) -> dict[str, Any]:
        return self.specs[name].canonical()

    def planner(self) -> Planner:
        planned = matrix()
        planner = Planner(planned, self, self.outcome, self.go, 0.03, spread=True)  # type: ignore[arg-type]
        first = [s for s in planned.values() if s.seed == 0]
        watching = [s for s in planned.values() if s.attack.name == "passive" and s.defense.name == "fedavg"]
        self.go([*first, *watching[1:], *planner.opening()])
        return planner


def test_what_a_plan_costs_is_told_by_the_seeds_that_today_was_watched_with() -> None:
    plan = Made().planner().find(matrix().values())
    assert plan is not None
    assert plan.server is not None
    assert plan.recommended.seeds == 3
    assert plan.recommended.cost == pytest.approx(0.01)
    assert plan.confirmed


@pytest.mark.parametrize(("lost", "left"), [((2,), 2), ((1, 2), 1)])
def test_a_run_of_today_that_failed_takes_its_seed_away_and_no_plan(lost: tuple[int, ...], left: int) -> None:
    """Seeds differ by more than the plan costs, so that others than these would say so."""

    def fails(spec: Spec) -> bool:
        adam = spec.federation.server.optimizer == "adam" and not spec.federation.protect
        return adam and spec.defense.name == "fedavg" and spec.seed in lost

    plan = Made(fails=fails).planner().find(matrix().values())
    assert plan is not None
    assert plan.recommended.seeds == left
    assert plan.recommended.cost == pytest.approx(0.01)
    assert plan.confirmed is (True if left > 1 else None)


@pytest.mark.parametrize("worse", ["leaks", "costs"])
def test_fresh_seeds_that_would_not_have_chosen_the_plan_do_not_confirm_it(worse: str) -> None:
    def told(spec: Spec) -> tuple[float, float]:
        auc, test = figure(spec)
        if spec.seed == 0 or spec.federation.server.optimizer == "adam":
            return auc, test
        return (0.89, test) if worse == "leaks" else (auc, test - 0.05)

    plan = Made(told=told).planner().find(matrix().values())
    assert plan is not None
    assert plan.changes
    assert plan.confirmed is False
    assert "would not have been chosen" in plan.text


def test_what_runs_beside_the_last_stage_is_not_asked_for_twice() -> None:
    made = Made()
    planner = made.planner()
    made.go(planner.first(matrix().values()))
    planner.find(matrix().values())
    assert len(made.asked) == len(set(made.asked))


def test_of_runs_that_say_nothing_no_plan_is_made_and_the_reason_is_told() -> None:
    made = Made(reasons=("the records alone tell members",))
    planner = made.planner()
    assert planner.first(matrix().values()) == []
    assert planner.find(matrix().values()) is None
    assert planner.refused() == "No plan was searched: the records alone tell members."
    searched = Made().planner()
    assert searched.find(matrix().values()) is not None
    assert searched.refused() == ""
