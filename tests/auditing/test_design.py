"""The design of an audit: coins, as many targets as fit, and reference federations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scapegoat as sg
from scapegoat.auditing import audit_specs, execute_cells
from scapegoat.auditing.sizing import LEAST_TARGETS, MOST_TARGETS, MOST_TEST, fitting_targets
from scapegoat.data import registry
from scapegoat.errors import InputError
from scapegoat.experiments import references

TINY = ["federation.batch_size=16", "attack.mask=30", "data.validation=20", "model.hidden=[8]"]
DATA = {"name": "hospital", "records": 700, "features": 20, "classes": 4}


def one(*overrides, data="hospital"):
    (spec,) = audit_specs(data=data, attacks=["passive"], defenses=["fedavg"], overrides=overrides)
    return spec


def test_an_audit_tosses_coins_for_as_many_targets_as_the_data_allow():
    spec = one()
    assert (spec.evaluation.design, spec.attack.targets) == ("coin", 1000)
    assert one(data={"name": "hospital", "records": 2000}).attack.targets == 600


def test_an_audit_takes_two_thousand_test_records_at_most_unless_told_otherwise():
    many = {"name": "hospital", "records": 20_000, "features": 5, "classes": 3}
    assert one(data=many).data.test == MOST_TEST == 2000
    assert one("data.test=3000", data=many).data.test == 3000
    assert one("data.train=17500", data=many).data.test is None
    assert one().data.test is None


def test_the_design_of_the_first_results_is_one_setting_away():
    spec = one("evaluation.design=even")
    assert (spec.evaluation.design, spec.attack.targets) == ("even", 300)
    assert spec.hash == sg.Spec(federation={"rounds": 150}, attack="passive", defense="fedavg").hash


def test_what_the_user_sets_stays():
    assert one("attack.targets=400").attack.targets == 400
    spec = one("evaluation={every: 5}")
    assert (spec.evaluation.every, spec.evaluation.design) == (5, "coin")


@given(
    records=st.integers(1200, 30_000),
    train=st.none() | st.integers(400, 2_000),
    validation=st.integers(0, 300),
    mask=st.integers(1, 400),
    benign=st.integers(2, 40),
)
def test_the_targets_that_fit_leave_training_as_large_as_it_would_be(records, train, validation, mask, benign):
    data = registry.get("hospital", train=train, validation=validation)
    found = fitting_targets(records, 0, data, benign, mask)
    assert LEAST_TARGETS <= found <= MOST_TARGETS
    if found == LEAST_TARGETS:
        return  # the least is asked for whether it fits or not
    kept = records // 2 if train is None else train
    held_out = found // 2 + mask + validation + int(0.1 * records)
    assert kept + held_out <= records
    assert benign + found // 2 <= kept


def test_references_add_their_scores_to_every_cell_and_are_never_computed_twice(tmp_path):
    def audit():
        events, expected = [], []
        specs = audit_specs(
            data=DATA,
            attacks=["passive"],
            defenses=["fedavg", "median"],
            rounds=2,
            overrides=[*TINY, "attack.targets=40"],
        )
        found = execute_cells(
            specs, tmp_path, references=2, jobs=1, on_event=events.append, on_plan=lambda *told: expected.append(told)
        )
        return found, [e.spec.evaluation.reference for e in events if e.kind == "finished"], expected

    found, computed, expected = audit()
    assert sorted(computed) == [0, 0, 1, 2]
    assert expected == [(4, True)]
    assert len(found.results) == 2
    for result in found.results:
        assert result.summary["membership"]["references"] == 2
        assert "lira_offline" in result.summary["membership"]["scores"]
    assert not any("--references" in note for note in found.notes)
    again, computed, _ = audit()
    assert computed == []
    assert [r.summary for r in again.results] == [r.summary for r in found.results]


def test_a_rehearsal_has_references_of_its_own_for_every_cell(tmp_path):
    specs = audit_specs(
        data=DATA, attacks=["passive", "blend"], defenses=["fedavg"], rounds=2, overrides=[*TINY, "attack.targets=40"]
    )
    events, expected = [], []
    found = execute_cells(
        specs,
        tmp_path,
        references=2,
        rehearse=True,
        jobs=1,
        on_event=events.append,
        on_plan=lambda *told: expected.append(told),
    )
    trained = [e.spec for e in events if e.kind == "finished" and e.spec.evaluation.reference]
    assert sorted((s.attack.name, s.evaluation.reference) for s in trained) == [
        ("blend", 1),
        ("blend", 2),
        ("passive", 1),
        ("passive", 2),
    ]
    assert expected[-1] == (6, True)
    assert all("lira_offline" in r.summary["membership"]["scores"] for r in found.results)


def test_a_rehearsal_without_references_is_refused():
    specs = audit_specs(attacks=["passive"], defenses=["fedavg"])
    with pytest.raises(InputError, match="rehearse: there are no references"):
        execute_cells(specs, "nowhere", rehearse=True)


def test_references_that_do_not_fit_are_left_out_and_it_is_said_where(tmp_path, monkeypatch):
    monkeypatch.setattr(references, "FITTING", 2.0)  # nothing fits so well
    specs = audit_specs(
        data=DATA, attacks=["passive"], defenses=["fedavg"], rounds=2, overrides=[*TINY, "attack.targets=40"]
    )
    found = execute_cells(specs, tmp_path, references=2, jobs=1)
    membership = found.results[0].summary["membership"]
    assert "lira_offline" not in membership["scores"]
    assert "do not fit" in membership["references_reason"]
    assert any("do not fit passive against fedavg" in note and "--rehearse" in note for note in found.notes)


def test_references_need_coins():
    specs = audit_specs(attacks=["passive"], defenses=["fedavg"], overrides=["evaluation.design=even"])
    with pytest.raises(InputError, match=r"evaluation\.design"):
        execute_cells(specs, "nowhere", references=2)


def test_settings_are_given_as_mappings_or_as_overrides_alike():
    given = {"federation": {"fraction": 0.5}, "attack_options": {"targets": 60}, "evaluation": {"every": 5}}
    (spec,) = audit_specs(attacks=["blend"], defenses=["fedavg"], **given)
    told = ["federation.fraction=0.5", "attack.targets=60", "evaluation.every=5"]
    (same,) = audit_specs(attacks=["blend"], defenses=["fedavg"], overrides=told)
    assert spec.canonical() == same.canonical()
    with pytest.raises(InputError):
        audit_specs(attacks=["blend"], attack_options={"gamma": 0.5})
