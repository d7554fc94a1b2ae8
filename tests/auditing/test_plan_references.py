"""With reference federations a plan is held against the same scores as the verdict."""

from __future__ import annotations

import pytest

import scapegoat as sg
from scapegoat.experiments import RunStore, parse
from scapegoat.experiments.references import reference_specs, with_references
from tests.auditing.test_plan import TINY

REFERENCES = 4
HELD = {**TINY, "seeds": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("held")


@pytest.fixture(scope="module")
def found(folder):
    return sg.audit(**HELD, references=REFERENCES, out=folder)


def helped(store, name):
    """A run's `membership` with the references of its own protections, rounds and seed."""
    specs = reference_specs(parse(store.spec(name)), REFERENCES)
    return with_references(store, name, specs)[0]["membership"]


def test_the_figures_of_a_plan_are_by_the_strongest_score_with_references_of_its_own_setting(found, folder):
    store = RunStore(folder)
    for option in (found.plan.today, found.plan.recommended):
        assert option.references == REFERENCES
        by_attack: dict[str, list[float]] = {}
        for name in option.runs:
            by_attack.setdefault(store.inspect(name).summary["attack"], []).append(
                helped(store, name)["worst_score"]["auc"]
            )
        assert option.leakage.value == pytest.approx(max(sum(aucs) / len(aucs) for aucs in by_attack.values()))
        assert {len(aucs) for aucs in by_attack.values()} == {2}


def test_plan_and_verdict_tell_the_same_of_today(found):
    of_today = {r.spec.attack.name: [] for r in found.results}
    for result in found.results:
        if result.spec.defense.name == "fedavg":
            of_today[result.spec.attack.name].append(result.summary["membership"]["worst_score"]["auc"])
    assert found.plan.today.leakage.value == pytest.approx(max(sum(aucs) / len(aucs) for aucs in of_today.values()))


def test_a_policy_about_the_plan_is_held_against_the_scores_with_references(found):
    assert found.plan_results
    for result in found.plan_results:
        membership = result.summary["membership"]
        assert membership["references"] == REFERENCES
        if "references_reason" not in membership:
            assert "lira_offline" in membership["scores"]
            assert "score_lira_offline" in result.targets.column_names
    worst = found.plan.recommended.leakage.value
    kept = found.check({"defense": "plan", "limits": {"auc": round(worst + 0.001, 3)}})
    assert next(c for c in kept.checks if c.key == "limits.auc").status == "held"
    broken = found.check({"defense": "plan", "limits": {"auc": round(worst - 0.002, 3)}})
    assert next(c for c in broken.checks if c.key == "limits.auc").status == "violated"


def test_only_what_was_held_against_references_is_on_the_frontier(found):
    others = [o for o in found.plan.options if not o.references]
    assert others
    assert all(o.references for o in found.plan.frontier)
    assert found.plan.recommended in found.plan.frontier or not found.plan.changes


def test_the_plan_says_by_what_scores_its_figures_are(found):
    assert f"{REFERENCES} reference federations" in found.plan.text
    assert found.plan.as_dict()["recommended"]["references"] == REFERENCES


def test_the_same_audit_again_trains_no_reference_and_finds_the_same_plan(found, folder):
    events = []
    again = sg.audit(**HELD, references=REFERENCES, out=folder, on_event=lambda event: events.append(event.kind))
    assert set(events) == {"skipped"}
    assert again.plan == found.plan
    assert [r.summary for r in again.plan_results] == [r.summary for r in found.plan_results]


def test_an_audit_stopped_among_the_references_of_its_plan_goes_on_to_the_same_plan(found, tmp_path):
    """It stops at the first reference that only the plan needs."""

    def stop(event):
        if event.spec.evaluation.reference and event.spec.federation.protect and event.kind == "finished":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sg.audit(**HELD, references=REFERENCES, out=tmp_path, on_event=stop)
    assert sg.audit(**HELD, references=REFERENCES, out=tmp_path).plan == found.plan


def test_a_rehearsal_rehearses_the_plan_too(tmp_path):
    found = sg.audit(
        **{**TINY, "attacks": ["passive"], "defenses": ["fedavg"], "accuracy_cost": 0.5},
        references=2,
        rehearse=True,
        out=tmp_path,
    )
    chosen = found.plan.recommended
    assert chosen.references == 2
    store = RunStore(tmp_path)
    for name in chosen.runs:
        spec = parse(store.spec(name))
        assert all(store.has(s.hash) for s in reference_specs(spec, 2, attack="same", defense="same"))


def test_without_references_the_plan_says_what_its_figures_are_by_and_what_would_be_stronger():
    from scapegoat.auditing.plan_words import sentences
    from tests.auditing.test_plan import DECAYED, TODAY

    told = " ".join(sentences(TODAY, DECAYED, 0.03, 9))
    assert "by the scores of one run" in told
    assert "--references 16" in told
    assert "--references" not in " ".join(sentences(TODAY, DECAYED, 0.03, 9, coins=False))
