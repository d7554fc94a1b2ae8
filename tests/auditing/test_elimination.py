"""Which rules an audit spends its runs on, and that it decides alike however often it is asked."""

import pytest

import scapegoat.auditing as auditing
from scapegoat.auditing import elimination
from scapegoat.auditing.elimination import SEEDS, contenders, staying
from scapegoat.auditing.stages import in_stages
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

    def audit(self, seeds=(0,), spread=False):
        specs = [made_up.spec(a, d, s) for s in seeds for d in DEFENSES for a in ATTACKS]
        told = self.expected.append
        return in_stages(named(specs), {}, self.go, lambda *said: told(said), self.outcome, spread=spread)


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


def test_one_rule_gets_all_attacks_where_the_probe_tells_it_from_the_next():
    assert staying(figures(PROBED | {"memory_atm": 0.71})) == ["fedavg", "reputation_atm"]
    yields = figures(PROBED | {"memory_atm": 0.71}, adaptive__reputation_atm=0.8)
    assert staying(yields) == ["fedavg", "reputation_atm", "memory_atm", "clipped_atm"]


def test_more_figures_never_send_a_rule_away_that_had_stayed():
    known = figures(PROBED | {"memory_atm": 0.71})
    before = staying(known)
    for auc in (0.5, 0.7, 0.8, 1.0):
        after = staying(known | figures({}, adaptive__reputation_atm=auc, blend__memory_atm=auc))
        assert set(before) <= set(after)


def test_a_difference_within_the_margin_brings_no_rule_back():
    assert len(staying(figures(adaptive__memory_atm=0.76))) == 3


def test_more_seeds_are_spent_on_the_rules_that_stay_alone():
    chosen, _ = Runs(figures()).audit(seeds=(0, 1))
    assert {spec.defense.name for spec in chosen.values() if spec.seed == 1} == {
        "fedavg",
        "memory_atm",
        "reputation_atm",
    }


def later(runs):
    """The runs of a second seed: (attack, rule)."""
    return {(attack, rule) for attack, rule, seed in runs.asked if seed == 1}


def test_spread_seeds_go_to_the_best_rule_and_to_watching_which_all_compare_with():
    runs = Runs(figures())
    chosen, left_out = runs.audit(seeds=range(SEEDS), spread=True)
    assert later(runs) == {(a, d) for a in ATTACKS for d in ("reputation_atm", "memory_atm")} | {("passive", "fedavg")}
    assert len(runs.asked) == len(set(runs.asked)) == len(chosen)
    # What has one seed because that is enough was not left out.
    assert {out.spec.seed for out in left_out} == {0}
    assert "fedavg" not in {out.spec.defense.name for out in left_out}


def test_spread_seeds_are_not_spent_on_a_rule_that_one_seed_tells_from_the_best():
    runs = Runs(figures(adaptive__memory_atm=0.75))
    runs.audit(seeds=range(SEEDS), spread=True)
    assert {rule for _, rule in later(runs)} == {"reputation_atm", "fedavg"}


def test_plain_averaging_gets_all_seeds_where_it_may_be_enough():
    runs = Runs(figures(dict.fromkeys(PROBED, 0.66)))
    runs.audit(seeds=range(SEEDS), spread=True)
    assert {(a, "fedavg") for a in ATTACKS} <= later(runs)


def test_the_first_seed_alone_decides_who_gets_more():
    told = figures(adaptive__memory_atm=0.75)
    assert contenders(told) == ["reputation_atm"]
    runs = Runs(told)
    runs.audit(seeds=range(SEEDS), spread=True)
    assert all(seed == 0 for _, _, seed in runs.asked[: -len(ATTACKS) * 2 - 2])


def test_the_same_figures_decide_alike_and_nothing_is_asked_for_twice():
    first, again = Runs(figures()), Runs(figures())
    assert list(first.audit()[0]) == list(again.audit()[0])
    assert first.asked == again.asked


def test_progress_says_about_how_many_runs_until_it_is_certain():
    runs = Runs(figures())
    chosen, _ = runs.audit()
    assert runs.expected[0] == (22, False)
    assert runs.expected[-1] == (len(chosen), True)
    spread = Runs(figures(adaptive__memory_atm=0.75))
    chosen, _ = spread.audit(seeds=range(SEEDS), spread=True)
    assert spread.expected[0] == (22 + 2 * (len(ATTACKS) + 1), False)
    assert spread.expected[-1] == (len(chosen), True)


@pytest.mark.parametrize("fails", [{("fedpoisonmia", "median")}, {("fedpoisonmia", d) for d in DEFENSES}])
def test_a_rule_whose_probe_failed_is_not_eliminated(fails):
    chosen, left_out = Runs({k: v for k, v in figures().items() if k not in fails}, fails).audit()
    for _, rule in fails:
        assert rule not in {out.spec.defense.name for out in left_out}
        assert sum(spec.defense.name == rule for spec in chosen.values()) == len(ATTACKS)


def test_where_nothing_says_which_rule_is_best_none_gets_more_seeds():
    """Every run of the probe failed, and every one of plain averaging."""
    fails = {(a, d) for a in ATTACKS for d in DEFENSES if a == "fedpoisonmia" or d == "fedavg"}
    runs = Runs({k: v for k, v in figures().items() if k not in fails}, fails)
    chosen, left_out = runs.audit(seeds=range(SEEDS), spread=True)
    assert {rule for _, rule in later(runs)} == {"fedavg"}
    assert left_out == []
    assert chosen


def test_the_probe_is_an_attack_of_an_audit_and_plain_averaging_a_rule():
    assert elimination.PROBE in auditing.ATTACKS
    assert elimination.PLAIN in auditing.DEFENSES
