"""Which rules an audit spends its runs on, and that it decides alike however often it is asked."""

import pytest

import scapegoat.auditing as auditing
from scapegoat.auditing import elimination
from scapegoat.auditing.auditor import _by_elimination
from scapegoat.auditing.elimination import staying
from scapegoat.experiments.executors import Failure, Outcome, named
from tests.auditing import made_up

PROBED = {
    "fedavg": 0.95,
    "median": 0.93,
    "trimmed_mean": 0.94,
    "atm": 0.85,
    "clipped_atm": 0.72,
    "memory_atm": 0.7,
    "reputation_atm": 0.66,
}

DEFENSES = tuple(PROBED)
ATTACKS = ("passive", "gradient_ascent", "agrevader", "adaptive", "fedpoisonmia", "blend")


def figures(probed=PROBED, **others):
    """`membership` by (attack, rule): the probe's AUC, and those of other attacks as attack__rule."""
    aucs = {("fedpoisonmia", rule): auc for rule, auc in probed.items()}
    aucs |= {tuple(key.split("__")): auc for key, auc in others.items()}
    return {key: {"worst_score": {"auc": auc, "auc_ci": [auc - 0.02, auc + 0.02]}} for key, auc in aucs.items()}


class Runs:
    """An executor that knows the figures already and notes what it was asked for."""

    def __init__(self, aucs, fails=()):
        self.aucs, self.fails, self.outcome, self.asked, self.expected = aucs, fails, Outcome(), [], []

    def go(self, specs):
        for name, spec in named(specs).items():
            cell = (spec.attack.name, spec.defense.name)
            self.asked.append((*cell, spec.seed))
            if cell in self.fails:
                self.outcome.failures[name] = Failure(name, spec, "no memory")
            else:
                found = self.aucs.get(cell, {"worst_score": {"auc": 0.6, "auc_ci": [0.58, 0.62]}})
                self.outcome.summaries[name] = {"membership": found}

    def audit(self, seeds=(0,)):
        specs = [made_up.spec(a, d, s) for s in seeds for d in DEFENSES for a in ATTACKS]
        return _by_elimination(named(specs), {}, self.go, lambda *told: self.expected.append(told), self.outcome)


def test_the_rules_that_leak_least_to_the_probe_get_all_attacks_and_every_rule_gets_the_probe():
    runs = Runs(figures())
    chosen, left_out = runs.audit()
    cells = {(spec.attack.name, spec.defense.name) for spec in chosen.values()}
    full = {"fedavg", "memory_atm", "reputation_atm"}
    assert cells == {(a, d) for d in DEFENSES for a in ATTACKS if d in full or a == "fedpoisonmia"}
    assert len(runs.asked) == len(set(runs.asked)) == len(chosen) == 22
    assert {(out.spec.attack.name, out.spec.defense.name) for out in left_out} | cells == {
        (a, d) for a in ATTACKS for d in DEFENSES
    }


def test_what_was_left_out_names_the_attack_that_eliminated_the_rule_and_what_was_compared():
    _, left_out = Runs(figures()).audit()
    reasons = {out.spec.defense.name: out.reason for out in left_out}
    assert reasons["median"].startswith("eliminated by fedpoisonmia: AUC 0.93, as much as under fedavg")
    assert reasons["atm"].startswith("eliminated by fedpoisonmia: AUC 0.85, more than under the rules that stayed")
    assert "reputation_atm 0.66" in reasons["atm"]


def test_a_rule_joins_when_one_that_stayed_yields_to_another_attack():
    weak = figures(adaptive__memory_atm=0.9)
    assert staying(figures()) == ["fedavg", "reputation_atm", "memory_atm"]
    assert staying(weak) == ["fedavg", "reputation_atm", "memory_atm", "clipped_atm"]
    chosen, _ = Runs(weak).audit()
    assert sum(spec.defense.name == "clipped_atm" for spec in chosen.values()) == len(ATTACKS)


def test_a_difference_within_the_margin_brings_no_rule_back():
    assert len(staying(figures(adaptive__memory_atm=0.76))) == 3


def test_more_seeds_are_spent_on_the_rules_that_stay_alone():
    chosen, _ = Runs(figures()).audit(seeds=(0, 1))
    assert {spec.defense.name for spec in chosen.values() if spec.seed == 1} == {
        "fedavg",
        "memory_atm",
        "reputation_atm",
    }


def test_the_same_figures_decide_alike_and_nothing_is_asked_for_twice():
    first, again = Runs(figures()), Runs(figures())
    assert list(first.audit()[0]) == list(again.audit()[0])
    assert first.asked == again.asked


def test_progress_says_about_how_many_runs_until_it_is_certain():
    runs = Runs(figures())
    chosen, _ = runs.audit()
    assert runs.expected[0] == (22, False)
    assert runs.expected[-1] == (len(chosen), True)


@pytest.mark.parametrize("fails", [{("fedpoisonmia", "median")}, {("fedpoisonmia", d) for d in DEFENSES}])
def test_a_rule_whose_probe_failed_is_not_eliminated(fails):
    chosen, left_out = Runs({k: v for k, v in figures().items() if k not in fails}, fails).audit()
    for _, rule in fails:
        assert rule not in {out.spec.defense.name for out in left_out}
        assert sum(spec.defense.name == rule for spec in chosen.values()) == len(ATTACKS)


def test_the_probe_is_an_attack_of_an_audit_and_plain_averaging_a_rule():
    assert elimination.PROBE in auditing.ATTACKS
    assert elimination.PLAIN in auditing.DEFENSES
