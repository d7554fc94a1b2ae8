"""An audit ends in a plan whose figures are those of its runs, and the same one however often it is stopped."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace

import pytest

import scapegoat as sg
from scapegoat.auditing.auditor import budget_of
from scapegoat.auditing.plan_words import headline, sentences
from scapegoat.errors import InputError
from scapegoat.experiments import RunStore, parse
from scapegoat.membership.metrics import Estimate
from scapegoat.report.planned import Option, Plan
from tests.auditing import made_up

TINY = {
    "data": {"name": "hospital", "records": 600, "features": 50, "classes": 5},
    "attacks": ["passive", "fedpoisonmia"],
    "defenses": ["fedavg", "atm"],
    "rounds": 40,
    "overrides": [
        "federation.batch_size=16",
        "attack.targets=40",
        "attack.mask=30",
        "data.validation=20",
        "model.hidden=[64]",
        "evaluation.every=5",
    ],
    "accuracy_cost": 0.1,
    "jobs": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("plan")


@pytest.fixture(scope="module")
def found(folder):
    return sg.audit(**TINY, out=folder)


def test_every_figure_of_a_plan_is_one_of_the_store(found, folder):
    store = RunStore(folder)
    for option in found.plan.options:
        summaries = [store.inspect(name).summary for name in option.runs]
        aucs = {s["attack"]: s["membership"]["worst_score"]["auc"] for s in summaries}
        tests = {s["attack"]: s["test_accuracy"] for s in summaries}
        assert option.leakage.value == max(aucs.values()) == aucs[option.attack]
        assert option.watching.value == aucs["passive"]
        assert option.test_accuracy == tests["passive"]
        assert option.under_attack == min(tests.values())
        assert tuple(aucs) == option.attacks
        assert {s["rounds"] for s in summaries} == {option.rounds}


def test_every_point_of_early_stopping_is_one_of_the_store(found, folder):
    store = RunStore(folder)
    for option in found.plan.options:
        tables = [store.rounds(name).to_pylist() for name in option.runs]
        watched = next(
            t for t, n in zip(tables, option.runs, strict=True) if store.inspect(n).summary["attack"] == "passive"
        )
        assert [s.round for s in option.stops] == [r["round"] + 1 for r in watched if r["test_accuracy"] is not None]
        for stop in option.stops:
            assert stop.test_accuracy == watched[stop.round - 1]["test_accuracy"]
            assert stop.auc == max(table[stop.round - 1]["attack_auc"] for table in tables)


def test_the_plan_keeps_to_the_budget_and_has_met_every_attack(found):
    plan = found.plan
    assert plan.recommended.cost <= plan.budget
    assert plan.recommended.complete
    assert set(TINY["attacks"]) <= set(plan.recommended.attacks)
    assert plan.today.rule_label == "fedavg"
    assert plan.today.cost == 0
    assert plan.today in plan.options
    assert plan.recommended in plan.options


def test_the_same_audit_again_computes_nothing_and_finds_the_same_plan(found, folder):
    events = []
    again = sg.audit(**TINY, out=folder, on_event=lambda event: events.append(event.kind))
    assert set(events) == {"skipped"}
    assert again.plan == found.plan


def test_the_matrix_is_as_without_a_plan(found):
    assert len(found.results) == 4
    assert not any(r.spec.federation.protect for r in found.results)
    assert len(found.page.studies) == 1


def test_programs_get_the_plan_as_json(found):
    told = json.loads(json.dumps(found.as_dict()["plan"]))
    assert told["rounds"] == found.plan.rounds
    assert told["recommended"]["auc"] == found.plan.recommended.leakage.value
    assert sum(option["on_frontier"] for option in told["options"]) == len(found.plan.frontier)


def test_the_runs_of_the_plan_can_be_held_against_a_policy(found):
    limit = found.plan.recommended.leakage.value
    kept = found.check({"defense": "plan", "limits": {"auc": limit}})
    assert {c.key for c in kept.checks if c.demand == "runs" and c.status == "held"} >= {"runs.fedpoisonmia"}
    assert next(c for c in kept.checks if c.key == "limits.auc").status == "held"
    broken = found.check({"defense": "plan", "limits": {"auc": round(limit - 0.01, 4)}})
    assert next(c for c in broken.checks if c.key == "limits.auc").status == "violated"
    assert not broken.met


@pytest.fixture(scope="module")
def left_to_us(tmp_path_factory):
    """An audit that chooses attacks, rules and seeds itself, and how to run it again."""
    mine = {key: value for key, value in TINY.items() if key not in ("attacks", "defenses")}
    options = {**mine, "out": tmp_path_factory.mktemp("seeds")}
    return sg.audit(**options), options


def test_seeds_that_an_audit_adds_are_of_the_rules_that_may_be_best_and_of_the_plan(left_to_us):
    found, _ = left_to_us
    seeds = {}
    for result in found.results:
        seeds.setdefault((result.spec.defense.name, result.spec.attack.name), set()).add(result.spec.seed)
    assert seeds["fedavg", "passive"] == {0, 1, 2}
    full = {rule for rule, _ in seeds if all(len(seeds.get((rule, a), ())) == 3 for a in sg.auditing.ATTACKS)}
    assert full
    assert all(len(of) in (1, 3) for of in seeds.values())
    plan = found.plan
    assert plan.recommended.seeds == 3
    assert {(r.spec.seed, r.spec.attack.name) for r in found.plan_results} == {
        (seed, attack) for seed in (0, 1, 2) for attack in plan.recommended.attacks
    }
    assert plan.changes
    assert "By the 2 seeds that had no part in the choice, it costs" in plan.text
    assert plan.confirmed is not None


def test_a_policy_about_the_plan_finds_a_run_of_every_attack_with_every_seed(left_to_us):
    checks = left_to_us[0].check({"defense": "plan", "limits": {"auc": 1.0}}).checks
    assert {(c.status, c.measured) for c in checks if c.demand == "runs"} == {("held", "3 of 3")}


def test_a_policy_about_a_rule_asks_for_the_seeds_that_the_audit_gave_it(left_to_us):
    found, _ = left_to_us
    cells = {(r.spec.defense.name, r.spec.attack.name): 0 for r in found.results}
    whole = [rule for rule, _ in cells if all((rule, attack) in cells for attack in sg.auditing.ATTACKS)]
    counts = set()
    for rule in dict.fromkeys(whole):
        policy = {"defense": rule, "limits": {"auc": 1.0, "accuracy_cost": 1.0}, "against": list(sg.auditing.ATTACKS)}
        checks = [c for c in found.check(policy).checks if c.demand in ("runs", "accuracy_cost")]
        assert {c.status for c in checks} == {"held"}
        counts |= {c.measured for c in checks if c.demand == "runs"}
    assert "3 of 3" in counts


def test_an_audit_that_chose_its_seeds_computes_nothing_when_asked_again(left_to_us):
    found, options = left_to_us
    events = []
    again = sg.audit(**options, on_event=lambda event: events.append(event.kind))
    assert set(events) == {"skipped"}
    assert again.plan == found.plan
    assert again.as_dict()["runs"] == found.as_dict()["runs"]


def test_a_number_of_seeds_that_was_asked_for_is_that_of_every_run_that_counts(left_to_us):
    one = sg.audit(**left_to_us[1], seeds=1)
    assert {result.spec.seed for result in (*one.results, *one.plan_results)} == {0}


def test_a_policy_about_a_plan_fails_where_none_was_searched():
    assert not made_up.audit().check({"defense": "plan", "limits": {"auc": 1.0}}).met


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, True), 0.03),
        ((None, None, False), None),
        ((0.0, None, False), 0.0),
        ((0.1, None, True), 0.1),
        ((None, True, False), 0.03),
        ((0.1, False, True), None),
    ],
)
def test_a_plan_is_searched_where_everything_is_left_to_the_audit_or_a_budget_is_given(given, expected):
    assert budget_of(*given) == expected


@pytest.mark.parametrize("cost", [-0.1, 1.1, float("nan")])
def test_a_budget_that_is_no_share_is_refused(cost):
    with pytest.raises(InputError, match="accuracy_cost"):
        budget_of(cost, None, True)


def option(rule="fedavg", protect=(), rounds=100, auc=0.9, test=0.7, today=0.7, clients=10, **more):
    return Option(
        rule=parse({"federation": {"clients": clients}, "defense": rule}).defense.canonical(),
        protect=tuple(parse({"federation": {"protect": list(protect)}}).canonical()["federation"].get("protect", [])),
        rounds=rounds,
        leakage=Estimate(auc, auc - 0.02, auc + 0.02),
        attack="fedpoisonmia",
        watching=Estimate(auc),
        test_accuracy=test,
        under_attack=test - 0.05,
        cost=today - test,
        attacks=("passive", "fedpoisonmia"),
        complete=True,
        runs=(),
        **more,
    )


TODAY = option()
DECAYED = option("reputation_atm", [{"name": "weight_decay", "rate": 0.01}, {"name": "cooling"}], 40, 0.65, 0.68)
PRIVATE = option(protect=[{"name": "dp_sgd", "clip": 1.0, "noise": 0.2}], auc=0.6, test=0.69, epsilon=702.4)


def test_the_words_name_the_steps_the_gain_the_cost_and_who_acts():
    assert headline(TODAY, DECAYED) == (
        "Do this: aggregate with reputation_atm, protect training with weight_decay (rate 0.01) and cooling "
        "and stop after 40 rounds instead of 100."
    )
    text = " ".join(sentences(TODAY, DECAYED, 0.03, 9))
    assert "in 90 of 100 comparisons" in text
    assert "in 65 of 100 comparisons" in text
    assert "costs 2.0 points of test accuracy" in text
    assert "The server does it alone" in text
    assert "not nothing" in text
    private = " ".join(sentences(TODAY, PRIVATE, 0.03, 9))
    assert "Every client must train with dp_sgd." in private
    assert "epsilon 702.4 for a record: as a promise that is worth next to nothing" in private


def test_the_words_name_other_steps_of_the_server():
    plan = replace(DECAYED, server={"optimizer": "sgd", "lr": 2.0})
    assert "let the server step by plain SGD with learning rate 2, protect training with" in headline(TODAY, plan)
    assert "sgd 2" in plan.label
    assert headline(TODAY, replace(TODAY, server={"optimizer": "adam", "lr": 0.001})) == (
        "Do this: let the server step by Adam with learning rate 0.001."
    )


def test_where_nothing_helps_the_words_say_so_and_promise_nothing():
    assert headline(TODAY, TODAY).startswith("Nothing that was tried within the budget")
    text = " ".join(sentences(TODAY, TODAY, 0.03, 9))
    assert "with this plan" not in text
    assert "less than today" not in text


def test_the_price_adds_up_where_today_was_run_with_fewer_seeds():
    """Today's runs with the first seed alone are .70 correct, with all three .68."""
    plan = replace(DECAYED, test_accuracy=0.67, cost=0.01, seeds=3)
    fresh = replace(plan, seeds=2, leakage=Estimate(0.66, 0.6, 0.7))
    text = " ".join(sentences(TODAY, plan, 0.03, 9, fresh, True))
    assert "costs 1.0 points of test accuracy while nobody attacks (67.0% correct instead of 68.0%" in text
    assert "means over 3 seeds (today's under attack over 1)" in text
    assert "an AUC of 0.66." in text
    broken = " ".join(sentences(TODAY, plan, 0.03, 9, fresh, False))
    assert "an AUC of 0.66: by these it would not have been chosen." in broken


def test_the_words_say_which_attacks_the_references_do_not_fit():
    plan = replace(DECAYED, references=8, unfit=("shadow", "fedpoisonmia"))
    text = " ".join(sentences(TODAY, plan, 0.03, 9))
    assert "compare with 8 reference federations" in text
    assert "do not fit the runs attacked by shadow and FedPoisonMIA" in text
    assert "do not fit" not in " ".join(sentences(TODAY, replace(plan, unfit=()), 0.03, 9))


def test_an_audit_of_a_model_that_was_hardly_trained_says_why_it_has_no_plan(tmp_path):
    found = sg.audit(**{**TINY, "attacks": ["passive"], "defenses": ["fedavg"], "rounds": 2}, out=tmp_path)
    assert found.plan is None
    said = [note for note in found.as_dict()["notes"] if "No plan was searched" in note]
    assert len(said) == 1
    assert "after 2 rounds of training" in said[0]
    assert said[0] in found.page.notes


def test_the_frontier_has_no_option_that_another_beats_in_both():
    worse = option(auc=0.95, test=0.66)
    untried = dataclasses.replace(option(auc=0.5, test=0.9), complete=False)
    plan = Plan(0.03, TODAY, DECAYED, (TODAY, DECAYED, PRIVATE, worse, untried))
    assert plan.frontier == (PRIVATE, TODAY)


SHORTER = "Shorter training, regularisation or differential privacy can: "


def leaking(plan=None):
    """An audit of a model that anyone who sees it can read its members from."""
    scores = {
        "final_margin": {"auc": 0.8, "auc_ci": [0.77, 0.83], "tpr_at_fpr_01": 0.3, "tpr_at_fpr_01_ci": [0.2, 0.4]}
    }
    worst = {"name": "final_margin", "auc": 0.8, "auc_ci": [0.77, 0.83], "tried": 1}
    changes = {"membership__scores": scores, "membership__worst_score": worst}
    found = made_up.audit(changed={("passive", "fedavg", 0): changes, ("passive", "atm", 0): changes})
    return dataclasses.replace(found, plan=plan, _page=[])


def test_where_no_rule_helps_the_verdict_points_to_the_plan_or_to_what_finds_one():
    without = leaking().verdict
    assert f"{SHORTER}scapegoat audit --accuracy-cost 0.03 finds out which, and at what price." in without.text
    planned = leaking(Plan(0.03, TODAY, DECAYED, (TODAY, DECAYED))).verdict
    assert f"{SHORTER}the plan below says which, and at what price." in planned.text
    assert "the plan below" in " ".join(planned.watching.sentences)
    assert "scapegoat audit" not in planned.text
    nothing = leaking(Plan(0.03, TODAY, TODAY, (TODAY,))).verdict
    assert "Nothing else that was tried within the budget does clearly better: see the plan below." in nothing.text
