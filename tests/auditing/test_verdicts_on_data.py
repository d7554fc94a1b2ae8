"""Verdicts of whole audits on small data that a mean over all records, or over nobody's rounds, would get wrong."""

import numpy as np
import pytest

import scapegoat as sg

SMALL = {"model": {"name": "mlp", "hidden": [32]}, "defenses": ["fedavg"], "jobs": 1}


@pytest.fixture(scope="module")
def rare():
    """Two in a hundred are positive; what little there is to learn of them is learnt by heart."""
    rng = np.random.default_rng(0)
    label = (rng.permutation(3000) < 60).astype(int)
    records = rng.normal(size=(3000, 30)).astype(np.float32)
    records[:, :3] += 0.4 * label[:, None]
    attacks = ["passive", "fedpoisonmia"]
    return sg.audit(data=(records, label), attacks=attacks, rounds=100, attack_options={"mask": 60}, **SMALL)


def test_a_rare_class_that_is_given_away_is_in_the_headline_though_the_mean_is_near_guessing(rare):
    verdict = rare.verdict
    assert all(run.summary["membership"]["worst_score"]["auc"] < 0.6 for run in rare.results)
    assert (verdict.status, verdict.watching.status) == ("open", "open")
    assert (verdict.watching.group.kind, verdict.watching.group.name) == ("class", 1)
    assert verdict.watching.group.auc.low > 0.5
    assert "gives the members of class 1 away to anyone who sees it" in verdict.headline
    assert "enough" not in verdict.headline


def test_that_a_hostile_client_adds_nothing_does_not_close_what_watching_shows(rare):
    assert rare.verdict.hostile.status == "closed"
    assert "A hostile participant adds little or nothing to that" in rare.verdict.headline
    assert rare.as_dict()["status"] == "open"


def test_the_metric_that_decided_each_part_is_named_and_printed(rare):
    found = rare.as_dict()
    assert found["decided_by"] == found["watching"]["decided_by"] == "AUC within class 1"
    assert "Decided by AUC within class 1" in found["verdict"]
    assert found["hostile"]["decided_by"] in ("accuracy", "AUC", "TPR at 1% false alarms")
    assert f"Decided by {found['hostile']['decided_by']} (" in found["verdict"]


def test_an_accounted_epsilon_is_in_the_verdict_the_page_and_the_json():
    tiny = {"name": "hospital", "records": 900, "features": 40, "classes": 4, "validation": 40}
    noisy = {"clients": 4, "batch_size": 16, "protect": [{"name": "dp_sgd", "clip": 1.0, "noise": 1.0}]}
    attacks = {"attacks": ["passive", "gradient_ascent"], "attack_options": {"targets": 200, "mask": 20}}
    found = sg.audit(data=tiny, rounds=25, federation=noisy, **attacks, **SMALL)
    run = found.results[0]
    epsilon = run.summary["privacy"]["epsilon"]
    assert f"FedAvg accounts for an epsilon of {epsilon:.2f} per record; its runs show at least" in found.verdict.text
    assert "that is a bug" not in found.verdict.text
    (rule,) = found.as_dict()["rules"]
    assert (rule["epsilon"], rule["epsilon_unit"], rule["epsilon_refuted"]) == (epsilon, "record", False)
    assert set(rule["epsilon_if_gaussian"]) == {"gaussian_noise", "gaussian_noise_by_auc"}
    assert f"ε {epsilon:.2f} accounted" in sg.report.to_html(found.page)
