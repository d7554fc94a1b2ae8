from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat import report
from scapegoat.membership import metrics
from scapegoat.report.estimate import difference
from scapegoat.report.measures import from_summary
from scapegoat.report.verdict import MAX_COST, TOLERANCE

# (accuracy, AUC, TPR at 1% FPR, test accuracy) by attack, for one rule
Figures = tuple[float, float, float, float]
WATCHING: Figures = (0.71, 0.78, 0.06, 0.65)


def summary(attack: str, defense: str, figures: Figures, seed: int = 0, targets: int = 300) -> dict[str, Any]:
    accuracy, auc, tpr, test = figures
    best, low = metrics.rate(round(accuracy * targets), targets), metrics.rate(round(tpr * targets / 2), targets // 2)
    half = 0.8 * (auc * (1 - auc) / targets) ** 0.5 * 1.96 + 1e-3
    return {
        "attack": attack,
        "defense": defense,
        "seed": seed,
        "test_accuracy": test,
        "membership": {
            "accuracy_best": best.value,
            "accuracy_best_ci": best.ci,
            "auc": auc,
            "auc_ci": [max(auc - half, 0), min(auc + half, 1)],
            "tpr_at_fpr_01": low.value,
            "tpr_at_fpr_01_ci": low.ci,
            "targets": targets,
        },
    }


def audit(rules: Mapping[str, Mapping[str, Figures]], targets: int = 300, seeds: int = 1) -> list[dict[str, Any]]:
    return [
        summary(attack, defense, figures, seed, targets)
        for defense, cells in rules.items()
        for attack, figures in cells.items()
        for seed in range(seeds)
    ]


FEDAVG = {"passive": WATCHING, "fedpoisonmia": (0.95, 0.97, 0.6, 0.54)}
TIGHT = {"passive": (0.71, 0.77, 0.06, 0.63), "fedpoisonmia": (0.71, 0.78, 0.07, 0.62)}


def test_the_rule_that_brings_the_attack_down_to_watching_is_recommended() -> None:
    found = report.verdict(audit({"fedavg": FEDAVG, "memory_atm": TIGHT}), clients=10, malicious=1)
    assert (found.recommended, found.hostile.status) == ("memory_atm", "closed")
    assert "With FedAvg a hostile client out of ten recognises members with accuracy 0.95 [0.92, 0.97]" in found.text
    assert "memory_atm brings the worst attack to 0.71" in found.text
    assert "Cost: 2 points of test accuracy (0.65 to 0.63 with nobody attacking)" in found.text
    assert "never below 0.62" in found.text


def test_leakage_that_yes_no_accuracy_hides_is_not_called_closed() -> None:
    hidden = {"passive": (0.71, 0.78, 0.06, 0.64), "fedpoisonmia": (0.72, 0.88, 0.3, 0.63)}
    found = report.verdict(audit({"fedavg": FEDAVG, "memory_atm": hidden}))
    assert found.status == "open"
    assert found.recommended is None
    assert "By yes/no accuracy alone it would look closed" in found.text
    judged = found.of("memory_atm")
    assert judged is not None
    assert ("fedpoisonmia", "auc") in judged.leaking


def test_a_rise_in_low_false_positive_detection_alone_keeps_a_rule_open() -> None:
    sneaky = {"passive": WATCHING, "fedpoisonmia": (0.71, 0.78, 0.45, 0.63)}
    found = report.verdict(audit({"fedavg": FEDAVG, "atm": sneaky}))
    judged = found.of("atm")
    assert judged is not None
    assert judged.status == "open"
    assert judged.leaking == (("fedpoisonmia", "tpr_at_fpr_01"),)


def test_it_says_when_no_rule_is_good_enough() -> None:
    leaky = {"passive": WATCHING, "fedpoisonmia": (0.88, 0.93, 0.4, 0.6)}
    found = report.verdict(audit({"fedavg": FEDAVG, "atm": leaky}))
    assert found.recommended is None
    assert found.hostile.headline == "No rule tried is good enough; atm leaks least."
    assert found.least == "atm"
    assert "atm leaks least of the rules tried" in found.text
    assert "still more than what watching already gives" in found.text


def test_a_rule_over_the_cost_limit_is_not_recommended() -> None:
    dear = {a: (*f[:3], f[3] - 0.12) for a, f in TIGHT.items()}
    found = report.verdict(audit({"fedavg": FEDAVG, "median": dear}))
    assert found.recommended is None
    judged = found.of("median")
    assert judged is not None
    assert judged.too_costly
    cheaper = report.verdict(audit({"fedavg": FEDAVG, "median": dear}), max_cost=0.2)
    assert cheaper.recommended == "median"


def test_when_only_dear_rules_exist_it_says_so() -> None:
    dear = {a: (*f[:3], f[3] - 0.12) for a, f in TIGHT.items()}
    only = {"fedavg": {**FEDAVG, "passive": WATCHING}, "median": dear}
    found = report.verdict([s for s in audit(only) if s["attack"] == "passive" or s["defense"] == "median"])
    assert found.recommended is None
    assert found.hostile.headline.startswith(
        "No rule tried is both tight and affordable: median, the tightest, costs 14 points"
    )
    assert "above the limit of 5" in found.text


def test_a_tight_rule_that_costs_too_much_is_named_with_its_price_not_plain_averaging() -> None:
    dear = {a: (*f[:3], f[3] - 0.12) for a, f in TIGHT.items()}
    leaky = {"passive": WATCHING, "fedpoisonmia": (0.93, 0.96, 0.5, 0.6)}
    found = report.verdict(audit({"fedavg": FEDAVG, "atm": leaky, "median": dear}))
    assert (found.recommended, found.least, found.status) == (None, "median", "open")
    assert "median, the tightest, costs 14 points of test accuracy" in found.headline
    assert "that is what watching already gives" in found.text


def test_plain_averaging_that_leaks_is_never_said_to_stay_near_watching() -> None:
    alone = report.verdict(audit({"fedavg": FEDAVG}))
    assert alone.hostile.headline == "FedAvg is not enough here."
    worse = {"passive": WATCHING, "fedpoisonmia": (0.99, 1.0, 0.9, 0.54)}
    least = report.verdict(audit({"fedavg": FEDAVG, "atm": worse}))
    assert least.hostile.headline == "No rule tried is good enough; FedAvg leaks least."
    for found in (alone, least):
        assert "stays within" not in found.text
        assert "That is more than what watching already gives (accuracy: FedPoisonMIA" in found.text


def test_a_rise_in_low_false_positive_detection_that_is_not_ruled_out_keeps_a_rule_from_closed() -> None:
    risen = {"passive": WATCHING, "fedpoisonmia": (0.71, 0.78, 0.14, 0.63)}
    found = report.verdict(audit({"fedavg": FEDAVG, "atm": risen}))
    assert (found.recommended, found.hostile.status) == ("atm", "undecided")
    assert "gains more than" not in found.hostile.headline
    judged = found.of("atm")
    assert judged is not None
    # The interval in the table is that of accuracy and AUC; the sentence allows for all three.
    assert judged.excess is not None
    assert judged.ceiling is not None
    assert judged.excess.low <= judged.excess.value <= judged.excess.high < TOLERANCE < judged.ceiling
    assert "By yes/no accuracy alone it would look closed; the scores do not rule out more." in found.text


def test_a_rule_that_nothing_was_compared_with_is_not_called_the_best() -> None:
    found = report.verdict(audit({"atm": {"fedpoisonmia": (0.55, 0.55, 0.02, 0.6)}}))
    assert found.recommended is None
    assert "best rule" not in found.text
    assert "brings" not in found.text


def test_a_model_that_has_memorised_nothing_yet_is_said_to_be_so() -> None:
    nothing = {"passive": (0.53, 0.5, 0.01, 0.3), "fedpoisonmia": (0.53, 0.5, 0.01, 0.3)}
    assert "memorised little or nothing yet" in report.verdict(audit({"fedavg": nothing})).text
    assert "memorised little or nothing yet" not in report.verdict(audit({"fedavg": FEDAVG})).text


def test_plain_averaging_is_enough_when_nothing_gains_on_watching() -> None:
    calm = {"passive": WATCHING, "fedpoisonmia": (0.71, 0.78, 0.06, 0.65)}
    found = report.verdict(audit({"fedavg": calm, "atm": calm}))
    assert found.recommended == "fedavg"
    assert "A hostile participant adds little or nothing to that under FedAvg" in found.headline


def test_a_rule_with_a_missing_attack_is_never_recommended() -> None:
    rules = {"fedavg": FEDAVG, "atm": TIGHT, "memory_atm": {"passive": (0.6, 0.6, 0.01, 0.65)}}
    found = report.verdict(audit(rules))
    assert found.recommended == "atm"
    judged = found.of("memory_atm")
    assert judged is not None
    assert (judged.status, judged.reason) == ("unjudged", "no run of fedpoisonmia")
    assert any("memory_atm is not judged: no run of fedpoisonmia" in note for note in found.caveats)


def test_without_a_run_of_watching_figures_are_held_against_guessing_and_it_says_so() -> None:
    rules = {"fedavg": {"fedpoisonmia": (0.95, 0.97, 0.6, 0.54)}, "atm": {"fedpoisonmia": (0.52, 0.5, 0.01, 0.6)}}
    found = report.verdict(audit(rules))
    assert found.recommended == "atm"
    assert "held against guessing" in found.text
    assert "what watching already gives" not in found.text
    assert "its cost in test accuracy is not known" in found.text.lower()


def test_watching_is_not_called_an_attack_on_plain_averaging() -> None:
    weak = {"passive": (0.75, 0.8, 0.1, 0.65), "fedpoisonmia": (0.70, 0.7, 0.01, 0.6)}
    assert (
        "recognises members with accuracy 0.70 [0.64, 0.75] (FedPoisonMIA"
        in report.verdict(audit({"fedavg": weak})).text
    )
    partly = report.verdict(audit({"fedavg": {"passive": WATCHING}, "atm": {"fedpoisonmia": WATCHING}}))
    assert partly.hostile.headline == "Too few runs for a verdict."
    assert "With FedAvg" not in partly.text


def test_watching_alone_gives_no_verdict_on_a_rule() -> None:
    found = report.verdict(audit({"fedavg": {"passive": WATCHING}, "atm": {"passive": WATCHING}}))
    assert found.recommended is None
    assert found.hostile.headline.startswith("Only watching was tried")


def test_nothing_finished_gives_no_verdict() -> None:
    found = report.verdict([])
    assert found.recommended is None
    assert found.headline == "There is no finished run to judge."


def test_few_targets_do_not_allow_the_claim_that_many_allow() -> None:
    rules = {"fedavg": FEDAVG, "memory_atm": TIGHT}
    assert report.verdict(audit(rules, targets=300)).hostile.status == "closed"
    few = report.verdict(audit(rules, targets=60))
    assert few.hostile.status == "undecided"
    assert few.recommended == "memory_atm"  # still demonstrably better than FedAvg
    assert "not shown to be enough" in few.headline
    assert "is not ruled out" in few.text
    assert any("Only 60 targets" in note for note in few.caveats)


def test_rules_that_cannot_be_told_apart_are_named() -> None:
    near = {"passive": (0.71, 0.77, 0.06, 0.63), "fedpoisonmia": (0.74, 0.8, 0.08, 0.6)}
    rules = {"fedavg": FEDAVG, "clipped_atm": near, "memory_atm": TIGHT}
    found = report.verdict(audit(rules, seeds=4))
    assert found.recommended == "clipped_atm"
    assert "memory_atm cannot be told apart from it; it is the cheapest." in found.headline


def test_one_lucky_seed_does_not_recommend_a_rule_that_cannot_be_told_from_another() -> None:
    """The one looks closed, the other does not, and their difference is what seeds usually differ by."""
    near = {"passive": (0.71, 0.77, 0.06, 0.64), "fedpoisonmia": (0.74, 0.8, 0.08, 0.64)}
    found = report.verdict(audit({"fedavg": FEDAVG, "clipped_atm": near, "memory_atm": TIGHT}))
    assert found.recommended is None
    assert (found.least, found.hostile.status) == ("clipped_atm", "undecided")
    assert "These runs cannot tell clipped_atm and memory_atm apart" in found.headline
    assert "clipped_atm is the cheapest" in found.headline
    assert found.seeds_needed is not None
    assert "seeds would settle it" in found.headline


def test_one_seed_recommends_a_rule_that_differs_by_more_than_seeds_do() -> None:
    far = {"passive": (0.71, 0.77, 0.06, 0.63), "fedpoisonmia": (0.93, 0.95, 0.5, 0.6)}
    found = report.verdict(audit({"fedavg": FEDAVG, "clipped_atm": far, "memory_atm": TIGHT}))
    assert found.recommended == "memory_atm"


def test_ties_go_to_the_higher_test_accuracy_under_attack() -> None:
    a = {"passive": (0.71, 0.77, 0.06, 0.64), "fedpoisonmia": (0.71, 0.78, 0.07, 0.50)}
    b = {"passive": (0.71, 0.77, 0.06, 0.64), "fedpoisonmia": (0.71, 0.785, 0.07, 0.62)}
    assert report.verdict(audit({"fedavg": FEDAVG, "atm": a, "median": b})).recommended == "median"


def test_no_rule_is_recommended_that_is_not_shown_to_beat_plain_averaging() -> None:
    rules = {
        "fedavg": {"passive": WATCHING, "fedpoisonmia": (0.78, 0.85, 0.1, 0.6)},
        "atm": {"passive": WATCHING, "fedpoisonmia": (0.77, 0.84, 0.1, 0.6)},
    }
    found = report.verdict(audit(rules, targets=100))
    assert found.hostile.status == "undecided"
    assert found.recommended is None
    assert "These runs cannot tell FedAvg and atm apart: no rule is recommended, and FedAvg is the cheapest." in (
        found.headline
    )
    assert found.seeds_needed is not None
    assert f"about {found.seeds_needed} seeds would settle it" in found.headline


def test_seeds_are_pooled_and_their_spread_counts() -> None:
    rules = {"fedavg": FEDAVG, "memory_atm": TIGHT}
    steady = report.verdict(audit(rules, seeds=3))
    assert steady.hostile.status == "closed"
    assert "Means and intervals over 3 seeds." in steady.caveats
    shaky = audit({"fedavg": FEDAVG}, seeds=3)
    for seed, (accuracy, auc) in enumerate(((0.66, 0.72), (0.70, 0.77), (0.83, 0.90))):
        shaky.append(summary("passive", "memory_atm", TIGHT["passive"], seed))
        shaky.append(summary("fedpoisonmia", "memory_atm", (accuracy, auc, 0.07, 0.62), seed))
    assert report.verdict(shaky).hostile.status != "closed"


def test_memorisation_that_no_rule_undoes_is_pointed_out() -> None:
    text = report.verdict(audit({"fedavg": FEDAVG, "memory_atm": TIGHT})).text
    assert "no aggregation rule can undo that" in text
    harmless = {"passive": (0.53, 0.5, 0.01, 0.65), "fedpoisonmia": (0.95, 0.97, 0.6, 0.54)}
    assert "no aggregation rule can undo" not in report.verdict(audit({"fedavg": harmless})).text


def test_several_hostile_clients_are_spoken_of_as_several() -> None:
    text = report.verdict(audit({"fedavg": FEDAVG, "atm": TIGHT}), clients=50, malicious=10).text
    assert "With FedAvg ten hostile clients out of 50 recognise members" in text


def test_pipelines_and_component_mappings_are_named_by_their_parts() -> None:
    found = audit({"fedavg": FEDAVG})
    for attack, figures in TIGHT.items():
        one = summary(attack, "", figures)
        one["defense"] = [{"name": "norm_clipping"}, {"name": "atm", "trim": 1}]
        found.append(one)
    assert report.verdict(found).recommended == "norm_clipping + atm"


def test_figures_that_are_not_numbers_are_left_out() -> None:
    broken = audit({"fedavg": FEDAVG, "atm": TIGHT})
    broken[-1]["membership"]["auc"] = float("nan")
    broken[-1]["membership"]["auc_ci"] = None
    judged = report.verdict(broken).of("atm")
    assert judged is not None
    assert judged.status == "unjudged"


rules_of_any_kind = st.dictionaries(
    st.sampled_from(["fedavg", "atm", "median", "memory_atm"]),
    st.fixed_dictionaries(
        {
            attack: st.tuples(st.floats(0.5, 1), st.floats(0.5, 1), st.floats(0, 1), st.floats(0.2, 0.8))
            for attack in ("passive", "adaptive", "fedpoisonmia")
        }
    ),
    min_size=1,
)


@settings(max_examples=60, deadline=None)
@given(rules_of_any_kind, st.sampled_from([40, 300, 2000]), st.integers(1, 3), st.randoms())
def test_a_verdict_never_claims_more_than_the_intervals_allow(
    rules: dict[str, dict[str, Figures]], targets: int, seeds: int, rng: random.Random
) -> None:
    found = audit(rules, targets, seeds)
    result = report.verdict(found)
    rng.shuffle(found)
    assert report.verdict(found) == result  # whatever the order of the runs
    assert result.text
    chosen = result.of(result.recommended or "")
    if chosen is not None:
        assert chosen.status in ("closed", "undecided")
        assert not chosen.too_costly
        assert chosen.cost is None or chosen.cost.value <= MAX_COST + 1e-9
    if seeds > 1 or "fedavg" not in rules:
        return
    base = from_summary(summary("passive", "fedavg", rules["fedavg"]["passive"], targets=targets))
    for judged in result.judgements:
        figures = {
            attack: from_summary(summary(attack, judged.defense, cells, targets=targets))
            for attack, cells in rules[judged.defense].items()
            if (attack, judged.defense) != ("passive", "fedavg")
        }
        gaps = [difference(f[m], base[m]) for f in figures.values() for m in ("accuracy_best", "auc")]
        assert judged.excess is not None
        assert judged.excess.value == pytest.approx(max(g.value for g in gaps))
        if judged.status == "closed":
            assert max(g.high for g in gaps) <= TOLERANCE + 1e-9
        if judged.status == "open":
            assert any(difference(f[m], base[m]).low > 0 for f in figures.values() for m in f if m != "test_accuracy")
