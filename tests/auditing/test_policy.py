"""A policy: what it takes, when it is met, and that it fails closed."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
import yaml

from scapegoat.auditing import Audit, read_policy
from scapegoat.auditing.gate_files import sarif, write_junit, write_sarif
from scapegoat.errors import InputError
from scapegoat.experiments import parse
from scapegoat.experiments.run import run
from scapegoat.membership.assessment import Scored
from scapegoat.membership.epsilon import one_run
from scapegoat.report.facts import facts
from tests.auditing import made_up
from tests.report.test_two_parts import rare_targets

LIMITS = {"auc": 0.75, "tpr_at_fpr_01": 0.1, "epsilon_lower": 3.0, "accuracy_cost": 0.05}
POLICY = {"defense": "atm", "limits": LIMITS}
LEAKY = ("fedpoisonmia", "atm", 0)
WATCHED = ("passive", "atm", 0)


def failures(found, policy=POLICY):
    return [check.text for check in found.check(policy).failures]


def test_a_policy_whose_limits_are_all_kept_is_met():
    gate = made_up.audit().check(POLICY)
    assert gate.met
    assert gate.failures == ()
    assert {check.key for check in gate.checks} >= {f"limits.{figure}" for figure in LIMITS}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"membership__worst_score__auc": 0.8, "membership__worst_score__auc_ci": [0.77, 0.83]},
            "auc of fedpoisonmia against atm: 0.800 [0.770, 0.830] by trajectory, limit 0.75",
        ),
        (
            {"membership__scores__final_margin__tpr_at_fpr_01": 0.11},
            "tpr_at_fpr_01 of fedpoisonmia against atm: 0.110 [0.000, 0.050] by final_margin, limit 0.1",
        ),
        ({"membership__epsilon_lower": 3.2}, "epsilon_lower of fedpoisonmia against atm: 3.200, limit 3"),
    ],
)
def test_a_figure_above_its_limit_is_a_violation_that_names_attack_figure_and_limit(changes, says):
    assert failures(made_up.audit(changed={LEAKY: changes})) == [says]


def test_references_that_fit_are_a_demand_that_is_met():
    gate = made_up.audit(changed={LEAKY: {"membership__references": 4}}).check(POLICY)
    assert gate.met
    assert [check.key for check in gate.checks if check.demand == "references"] == ["references.fedpoisonmia"]


def test_what_the_server_sees_is_no_violation_of_a_limit_on_clients():
    server = {"seat": "server", "auc": 0.99, "auc_ci": [0.98, 1.0], "tpr_at_fpr_01": 0.9, "tpr_at_fpr_01_ci": [0.8, 1]}
    seen = {"worst_score": {**server, "name": "update_regression"}, "epsilon_lower": 4.5, "epsilon_ceiling": 5.0}
    changes = {"membership__scores__update_regression": server, "membership__server": seen}
    assert made_up.audit(changed={LEAKY: changes}).check(POLICY).met


def test_the_figure_decides_and_not_the_end_of_its_interval():
    wide = {"membership__worst_score__auc": 0.75, "membership__worst_score__auc_ci": [0.6, 0.9]}
    assert made_up.audit(changed={LEAKY: wide}).check(POLICY).met


def test_the_accuracy_cost_is_measured_while_nobody_attacks():
    assert failures(made_up.audit(changed={("passive", "atm", 0): {"test_accuracy": 0.54}})) == [
        "accuracy_cost of atm: 0.060, limit 0.05"
    ]
    assert made_up.audit(changed={LEAKY: {"test_accuracy": 0.1}}).check(POLICY).met


def test_what_another_rule_leaks_is_no_violation():
    leak = {"membership__worst_score__auc": 0.99}
    assert made_up.audit(changed={("fedpoisonmia", "fedavg", 0): leak}).check(POLICY).met


def test_an_attack_may_have_a_closer_limit_of_its_own():
    closer = {**POLICY, "attacks": {"fedpoisonmia": {"auc": 0.6}}}
    assert failures(made_up.audit(), closer) == [
        "auc of fedpoisonmia against atm: 0.650 [0.600, 0.700] by trajectory, limit 0.6"
    ]


def test_several_seeds_count_with_their_mean_and_epsilon_with_its_largest():
    def second(value):
        return {("fedpoisonmia", "atm", 1): {"membership__worst_score__auc": value}}

    assert made_up.audit(seeds=(0, 1), changed=second(0.84)).check(POLICY).met
    assert failures(made_up.audit(seeds=(0, 1), changed=second(0.86))) == [
        "auc of fedpoisonmia against atm: 0.755 (mean of 2 seeds), limit 0.75"
    ]
    refuted = made_up.audit(seeds=(0, 1), changed={("passive", "atm", 1): {"membership__epsilon_lower": 3.5}})
    assert failures(refuted) == ["epsilon_lower of passive against atm: 3.500 (largest of 2 seeds), limit 3"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"without": [LEAKY]}, "fedpoisonmia against atm: was not run"),
        ({"seeds": (0, 1), "without": [LEAKY]}, "fedpoisonmia against atm: seed 0 is missing"),
        ({"failed": [LEAKY]}, "seed 0 failed (it ran out of memory)"),
        ({"defenses": ("fedavg", "median")}, "passive against atm: was not run"),
        ({"defenses": ("fedavg", {"name": "atm", "trim": 2})}, "passive against atm: was not run"),
        (
            {"changed": {LEAKY: {"validity": {"valid": False, "reasons": ["members differ before training"]}}}},
            "valid of fedpoisonmia against atm: seed 0: members differ before training",
        ),
        ({"changed": {LEAKY: {"validity": None}}}, "the run has no guards"),
        (
            {"changed": {WATCHED: {"rounds": 5, "train_accuracy": 0.62}}},
            "trained of atm: training accuracy 0.62, test accuracy 0.60, after 5 rounds of training",
        ),
        (
            {"changed": {WATCHED: {"train_accuracy": 0.61, "test_majority": 0.6}}},
            "trained of atm: training accuracy 0.61, test accuracy 0.60, and naming the largest class alone gets 0.60",
        ),
        (
            {"changed": {LEAKY: {"membership__references": 4, "membership__references_reason": "they do not fit"}}},
            "references of fedpoisonmia against atm: seed 0: they do not fit",
        ),
        (
            {"changed": {LEAKY: {"privacy": {"epsilon": 1.0, "delta": 1e-5}}}},
            "accounted of atm: epsilon 1.000, at least 1.200 shown",
        ),
        (
            {
                "changed": {
                    LEAKY: {
                        "membership__scores__trajectory__tpr_at_fpr_01": None,
                        "membership__scores__trajectory__tpr_at_fpr_01_reason": "50 non-members cannot show it",
                    }
                }
            },
            "cannot be shown to hold (50 non-members cannot show it), limit 0.1",
        ),
        (
            {
                "changed": {
                    LEAKY: {
                        "membership__epsilon_lower": None,
                        "membership__epsilon_lower_reason": "no coins were tossed",
                    }
                }
            },
            "cannot be shown to hold (no coins were tossed), limit 3",
        ),
        ({"changed": {LEAKY: {"membership__epsilon_reachable": 2.9}}}, "its targets can show 2.90 at most"),
        ({"changed": {LEAKY: {"membership__epsilon_reachable": None}}}, "the run does not say what its targets could"),
        ({"changed": {LEAKY: {"membership__worst_score__auc_ci": None}}}, "no interval by trajectory"),
        (
            {"changed": {LEAKY: {"membership__worst_score__auc": float("nan")}}},
            "auc of fedpoisonmia against atm: cannot",
        ),
        ({"changed": {LEAKY: {"membership__scores": {}}}}, "the run has no scores"),
        ({"without": [("passive", "fedavg", 0)]}, "accuracy_cost of atm: cannot be shown"),
        ({"changed": {("passive", "fedavg", 0): {"test_accuracy": None}}}, "accuracy_cost of atm: cannot be shown"),
    ],
)
def test_what_cannot_be_shown_to_hold_never_passes(options, says):
    found = made_up.audit(**options)
    assert not found.check(POLICY).met
    assert any(says in line for line in failures(found)), failures(found)


def test_a_class_that_is_given_away_violates_a_limit_on_auc_that_all_records_together_keep():
    table = rare_targets()
    leaky = [replace(made_up.result(attack, "atm"), targets=table) for attack in made_up.ATTACKS]
    (check,) = Audit(tuple(leaky), ()).check({"defense": "atm", "limits": {"auc": 0.75}}).failures
    assert (check.key, check.status) == ("limits.auc", "violated")
    assert "within class 1 by final_margin, limit 0.75" in check.text
    # Of groups that leak nothing some AUC is above any limit by chance; its interval is not.
    blind = table.set_column(
        table.column_names.index("score_final"),
        "score_final",
        pa.array(np.random.default_rng(0).normal(size=table.num_rows)),
    )
    harmless = [replace(run, targets=blind) for run in leaky]
    assert Audit(tuple(harmless), ()).check({"defense": "atm", "limits": {"auc": 0.66}}).met
    one = [replace(run, targets=blind if run.spec.attack.name != "blend" else table) for run in leaky]
    closer = {"defense": "atm", "limits": {"auc": 1.0}, "attacks": {"blend": {"auc": 0.75}}}
    assert [c.key for c in Audit(tuple(one), ()).check(closer).failures] == ["attacks.blend.auc"]


@pytest.mark.parametrize("targets", [300, 1000, 2000])
def test_no_limit_on_epsilon_is_kept_by_a_model_that_gives_everything_away(targets):
    rng = np.random.default_rng(0)
    member = rng.random(targets) < 0.5
    scores = {name: member + rng.random(targets) / 1000 for name in ("final_margin", "mean_margin", "trajectory")}
    figures = Scored(member=member, coins=True, scores=scores).figures()
    shown, ceiling = figures["epsilon_lower"], figures["epsilon_ceiling"]
    assert shown == pytest.approx(figures["epsilon_reachable"])
    assert shown < ceiling
    leaks = {f"membership__{key}": figures[key] for key in ("epsilon_lower", "epsilon_ceiling", "epsilon_reachable")}
    found = made_up.audit(changed={LEAKY: leaks})
    for limit in (shown - 0.01, shown, (shown + ceiling) / 2, ceiling, 20.0):
        checks = found.check({"defense": "atm", "limits": {"epsilon_lower": limit}}).checks
        assert [check.status for check in checks if check.demand == "epsilon_lower"] != ["held"], limit


def test_what_an_older_runs_targets_could_show_is_computed_only_where_its_rules_are_known():
    member = np.arange(400) % 2 == 0
    figures = Scored(member, True, {"final_margin": np.random.default_rng(0).normal(size=400)}).figures()
    older = {**figures, "targets": 400, "members": 200}
    del older["epsilon_reachable"]
    between = (figures["epsilon_reachable"] + figures["epsilon_ceiling"]) / 2
    for membership, limit, held in (
        (older, 3.0, True),
        (older, between, False),
        ({key: value for key, value in older.items() if key != "epsilon_bounds"}, 3.0, False),
    ):
        found = made_up.audit(changed={(a, "atm", 0): {"membership": membership} for a in made_up.ATTACKS})
        checks = found.check({"defense": "atm", "limits": {"epsilon_lower": limit}}).checks
        assert [c.status for c in checks if c.demand == "epsilon_lower"] == ["held" if held else "unproven"]


def test_an_accounted_epsilon_that_no_run_contradicts_is_no_violation():
    gate = made_up.audit(changed={LEAKY: {"privacy": {"epsilon": 4.0, "delta": 1e-6}}}).check(POLICY)
    assert gate.met
    assert "accounted" in {check.key for check in gate.checks}


@pytest.mark.parametrize("privacy", [{"epsilon": 1.0, "delta": 1e-3}, {"epsilon": 1.0}])
def test_an_epsilon_at_a_larger_delta_than_that_of_the_bound_is_not_compared_with_it(privacy):
    gate = made_up.audit(changed={LEAKY: {"privacy": privacy}}).check(POLICY)
    assert "accounted" not in {check.key for check in gate.checks}


@pytest.mark.parametrize(("delta", "compared"), [(1e-5, True), (1e-7, True), (1e-4, False)])
def test_the_delta_of_noise_that_a_rule_adds_is_the_rules(delta, compared):
    rule = {"name": "dp", "clip": 1.0, "noise_multiplier": 1.0, "delta": delta}
    runs = [made_up.result(attack, rule, aggregation={"epsilon": 1.0}) for attack in made_up.ATTACKS]
    gate = Audit(tuple(runs), ()).check({"defense": rule, "limits": {"auc": 0.75}})
    assert [c.status for c in gate.checks if c.key == "accounted"] == (["violated"] if compared else [])


def test_summaries_say_at_which_delta_a_rule_accounts():
    rule = {"name": "dp", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-3}
    tiny = ["federation.rounds=2", "attack.name=passive", "federation.batch_size=16", "data.features=20"]
    tiny += ["attack.targets=40", "attack.mask=30", "data.validation=20", "model.hidden=[8]", "data.records=600"]
    found = run(parse({"defense": rule}, tiny)).summary
    assert found["aggregation"]["delta"] == 1e-3
    assert facts(found).epsilon is not None
    assert facts(found).refutable is None
    older = {**found, "aggregation": {"epsilon": 1.0}}
    assert facts(older, {"defense": {**rule, "delta": 1e-6}}).refutable == 1.0
    assert facts(older, {"defense": [{"name": "bucketing"}, {**rule, "delta": 1e-4}]}).refutable is None


def test_a_bound_pays_for_the_runs_that_were_looked_at_before_it_is_called_a_contradiction():
    rng = np.random.default_rng(0)
    member = rng.random(1000) < 0.5
    targets = pa.table({"member": member, "score_final": rng.normal(size=1000) + 1.5 * member})
    alone = one_run(targets["score_final"].to_numpy(), member).epsilon
    claim = {"privacy": {"epsilon": alone - 0.005, "delta": 1e-5}, "membership__epsilon_lower": alone}
    limits = {"defense": "atm", "limits": {"auc": 0.75}}
    runs = [replace(made_up.result(attack, "atm", **claim), targets=targets) for attack in made_up.ATTACKS]
    (found,) = [c for c in Audit(tuple(runs), ()).check(limits).checks if c.key == "accounted"]
    assert found.status == "held"
    assert f"95% sure over {len(runs)} runs" in found.measured
    (found,) = [c for c in Audit(tuple(runs[:1]), ()).check(limits).checks if c.key == "accounted"]
    assert found.status == "violated"


def test_seeds_that_an_audit_spent_elsewhere_are_not_missing():
    """One seed told the rule from the best; those that it did have, and lost, are asked for."""
    later = [(attack, "atm", seed) for attack in made_up.ATTACKS for seed in (1, 2)]
    found = made_up.audit(seeds=(0, 1, 2), without=later)
    assert not found.check(POLICY).met
    assert replace(found, spread=True).check(POLICY).met
    second = ("fedpoisonmia", "atm", 1)
    kept = [key for key in later if key != second]
    lost = replace(made_up.audit(seeds=(0, 1, 2), without=kept, failed=[second]), spread=True)
    assert failures(lost) == ["runs of fedpoisonmia against atm: seed 1 failed (it ran out of memory)"]
    first = replace(made_up.audit(seeds=(0, 1, 2), without=[*later, LEAKY]), spread=True)
    assert failures(first) == ["runs of fedpoisonmia against atm: was not run"]


def test_an_attack_that_the_policy_does_not_ask_for_may_be_missing():
    found = made_up.audit(without=[LEAKY])
    asked = [attack for attack in made_up.ATTACKS if attack != "fedpoisonmia"]
    assert found.check({**POLICY, "against": asked}).met


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "must be a mapping"),
        ("defense: atm", "limits: are missing"),
        ("limits: {auc: 0.7}", "defense: is missing"),
        ("{defense: atm, limits: {auk: 0.7}}", "limits.auk: is not a known key"),
        ("{defense: atm, limits: {auc: 70}}", "limits.auc"),
        ("{defense: atm, limits: {auc: .nan}}", "limits.auc"),
        ("{defense: atm, limits: {auc: yes}}", "limits.auc"),
        ("{defense: atm, limits: {epsilon_lower: -1}}", "limits.epsilon_lower"),
        ("{defense: magic, limits: {auc: 0.7}}", "defense"),
        ("{defense: {name: atm, trim: -1}, limits: {auc: 0.7}}", "trim"),
        ("{defense: atm, limits: {auc: 0.7}, attacks: {magic: {auc: 0.7}}}", "'magic' is not an attack"),
        ("{defense: atm, limits: {auc: 0.7}, attacks: {passive: {accuracy_cost: 0.1}}}", "accuracy_cost"),
        (
            "{defense: atm, limits: {auc: 0.7}, against: [passive], attacks: {blend: {auc: 0.7}}}",
            "not among those tried",
        ),
        ("{defense: atm, limits: {auc: 0.7}, against: []}", "against"),
        ("{defense: atm, limits: {auc: 0.7}, source: x}", "source"),
        ("{defense: atm, limits: {auc: 0.7}", "not YAML"),
    ],
)
def test_a_malformed_policy_is_refused_in_one_line_that_names_the_file(tmp_path, text, says):
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_policy(path)
    assert says in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "my policy.yaml"
    path.write_text("defense: atm\nlimits:\n  tpr_at_fpr_01: 0.1\n  auc: 0.6\nattacks:\n  blend: {auc: 0.9}\n")
    return made_up.audit().check(path)


def test_junit_has_a_test_case_per_demand_and_a_failure_where_it_is_not_met(written, tmp_path):
    write_junit(written, tmp_path / "policy.xml")
    suite = ElementTree.parse(tmp_path / "policy.xml").getroot().find("testsuite")
    cases = {case.get("name"): case.find("failure") for case in suite}
    assert int(suite.get("tests")) == len(cases) == len(written.checks)
    assert int(suite.get("failures")) == 1
    failed = {name for name, failure in cases.items() if failure is not None}
    assert failed == {"limits.auc"}
    assert "0.650" in cases["limits.auc"].get("message")


def test_sarif_has_what_version_2_1_0_requires_and_points_to_the_line_of_the_limit(written, tmp_path):
    write_sarif(written, tmp_path / "policy.sarif")
    log = json.loads((tmp_path / "policy.sarif").read_text())
    assert log == sarif(written)
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "scapegoat"
    assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
    for found in run["results"]:
        assert found["message"]["text"]
        assert driver["rules"][found["ruleIndex"]]["id"] == found["ruleId"]
        assert (found["kind"], found["level"]) in (("pass", "none"), ("fail", "error"))
        place = found["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"].endswith("my%20policy.yaml")
        assert place["region"]["startLine"] >= 1
    (failed,) = [found for found in run["results"] if found["kind"] == "fail"]
    assert failed["ruleId"] == "auc"
    assert failed["locations"][0]["physicalLocation"]["region"]["startLine"] == 4


def _tiny():
    tiny = ["federation.batch_size=16", "attack.targets=40", "attack.mask=30", "data.validation=20"]
    tiny += ["model.hidden=[8]", "data.records=600", "data.features=20", "data.classes=4"]  # of 100 it learns none
    return [word for override in tiny for word in ("--set", override)]


def _command(tmp_path, *more):
    command = [sys.executable, "-m", "scapegoat", "audit", "--rounds", "20", "--jobs", "1", *_tiny(), *more]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)


def test_ci_sees_0_when_a_policy_is_met_3_when_it_is_not_and_2_when_it_is_malformed(tmp_path):
    def policy(limits):
        (tmp_path / "policy.yaml").write_text(f"{{defense: median, limits: {limits}, against: [passive]}}")

    policy("{auc: 1.0}")
    met = _command(tmp_path, "--policy", "policy.yaml", "--json")
    assert met.returncode == 0, met.stderr
    found = json.loads(met.stdout)
    assert found["policy"]["met"]
    assert {run["defense"] for run in found["runs"]} == {"fedavg", "median"}
    policy("{auc: 1.0, tpr_at_fpr_01: 1.0}")
    violated = _command(tmp_path, "--policy", "policy.yaml", "--junit", "policy.xml", "--sarif", "policy.sarif")
    assert violated.returncode == 3
    (line,) = violated.stderr.strip().splitlines()
    assert line.startswith("scapegoat: policy: tpr_at_fpr_01 of passive against median: cannot be shown to hold")
    assert (tmp_path / "policy.xml").exists()
    assert (tmp_path / "policy.sarif").exists()
    policy("{auc: 0.5}")
    violated = _command(tmp_path, "--policy", "policy.yaml")
    assert violated.returncode == 3
    (line,) = violated.stderr.strip().splitlines()
    assert line.startswith("scapegoat: policy: auc of passive against median: 0.")
    assert line.endswith("limit 0.5")
    policy("{auc: 7}")
    malformed = _command(tmp_path, "--policy", "policy.yaml", "--out", "elsewhere")
    assert malformed.returncode == 2
    assert len(malformed.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "elsewhere").exists()


MEDIAN = "{defense: median, limits: {auc: 1.0}, against: [passive]}"


def _gated(folder, policy, *more):
    """The command with a policy, in a process of its own: what a CI sees."""
    (folder / "policy.yaml").write_text(policy)
    return _command(folder, "--policy", "policy.yaml", *more)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A finished audit that keeps its policy; every way to fail below is a variation of it."""
    folder = tmp_path_factory.mktemp("gate")
    assert _gated(folder, MEDIAN).returncode == 0
    return folder


@pytest.mark.parametrize(
    ("policy", "options", "says"),
    [
        ("{defense: median, limits: {auc: 1.0}, against: [passive, blend]}", ["--attack", "passive"], "was not run"),
        (MEDIAN, ["damaged"], "failed ("),
        (MEDIAN, ["--set", "attack.targets=4"], "too few to compare"),
        (
            "{defense: median, limits: {tpr_at_fpr_001: 1.0}, against: [passive]}",
            [],
            "cannot show a false positive rate",
        ),
        (MEDIAN, ["--rounds", "5"], "after 5 rounds of training"),
    ],
    ids=["a run is missing", "a run failed", "a guard failed", "a rate is not resolvable", "nothing was learnt"],
)
def test_ci_sees_3_in_each_of_the_five_ways_in_which_nothing_was_shown(audited, tmp_path, policy, options, says):
    shutil.copytree(audited / "audit", tmp_path / "audit")
    if options == ["damaged"]:
        options = []
        of_median = [p for p in (tmp_path / "audit").rglob("spec.json") if "median" in p.read_text()]
        (of_median[0].parent / "targets.parquet").write_bytes(b"")
    done = _gated(tmp_path, policy, *options)
    assert done.returncode == 3, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_names_the_largest_class_is_not_judged_though_its_training_records_are_easier(tmp_path, capsys):
    """Rare records are taken as targets, and coins keep half of them out: the largest class's share differs."""
    from scapegoat.cli import main

    rng = np.random.default_rng(1)
    label = np.zeros(1500, dtype=int)
    label[rng.permutation(1500)[:120]] = np.repeat(np.arange(1, 5), 30)
    lines = [",".join(f"{value:.3f}" for value in row) for row in rng.normal(size=(1500, 6))]
    rows = [f"{line},c{name}" for line, name in zip(lines, label, strict=True)]
    (tmp_path / "skew.csv").write_text("\n".join(["a,b,c,d,e,f,label", *rows]))
    (tmp_path / "policy.yaml").write_text("{defense: fedavg, limits: {auc: 0.75}, against: [passive]}")
    files = {"--data": "skew.csv", "--policy": "policy.yaml", "--out": "audit", "--report": "r.html"}
    untaught = ["federation.server.lr=0.0001", "attack.mask=30"]
    command = ["audit", "--rounds", "25", "--jobs", "1", "--json"]
    command += [word for key, name in files.items() for word in (key, str(tmp_path / name))]
    with pytest.raises(SystemExit) as stop:
        main([*command, *[word for setting in untaught for word in ("--set", setting)]])
    assert stop.value.code == 3
    found = json.loads(capsys.readouterr().out)
    (run,) = found["runs"]
    assert run["test_accuracy"] == pytest.approx(run["test_majority"])
    assert run["train_accuracy"] - run["test_accuracy"] > 0.03
    assert found["status"] == "undertrained"
    assert (
        "the model's test accuracy is no better than always answering the most frequent class" in found["caveats"][-1]
    )


def test_junit_and_sarif_without_a_policy_are_refused(capsys):
    from scapegoat.cli import main

    with pytest.raises(SystemExit) as stop:
        main(["audit", "--junit", "x.xml"])
    assert stop.value.code == 2
    assert "--policy" in capsys.readouterr().err


def test_the_policy_of_the_examples_is_one_and_its_workflow_holds_the_audit_against_it():
    example = Path(__file__).parents[2] / "examples" / "policy"
    assert read_policy(example / "policy.yaml").limits.given() == LIMITS
    workflow = yaml.safe_load((example / "privacy.yml").read_text())
    commands = [step["run"] for step in workflow["jobs"]["policy"]["steps"] if "run" in step]
    assert any("--policy policy.yaml" in command and "--sarif policy.sarif" in command for command in commands)
