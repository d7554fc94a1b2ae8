"""What a summary says of scores: figures with intervals, the worst one, epsilon only where coins allow it, guards."""

from __future__ import annotations

import json

import numpy as np
import pytest

from scapegoat.membership import assessment
from scapegoat.membership.assessment import Scored, blind, observed_scores, referenced_scores
from scapegoat.membership.exposure import posteriors
from scapegoat.membership.guards import Blind
from scapegoat.membership.metrics import Estimate


def example(targets: int = 400, gap: float = 2.0, coins: bool = True) -> Scored:
    rng = np.random.default_rng(0)
    member = rng.random(targets) < 0.5
    scores = {name: rng.normal(size=targets) + gap * member for name in ("final_margin", "trajectory")}
    scores["fedmia"] = rng.normal(size=targets)
    return Scored(member=member, coins=coins, scores=scores)


def test_every_score_has_its_figures_and_all_of_it_is_json() -> None:
    figures = example().figures()
    assert set(figures["scores"]) == {"final_margin", "trajectory", "fedmia"}
    for name, found in figures["scores"].items():
        assert found["auc_ci"][0] <= found["auc"] <= found["auc_ci"][1]
        assert found["tpr_at_fpr_01_ci"][0] <= found["tpr_at_fpr_01"] <= found["tpr_at_fpr_01_ci"][1]
        assert found["seat"] == ("server" if name == "fedmia" else "client")
    json.dumps(figures, allow_nan=False)


def test_a_rate_that_the_non_members_cannot_show_is_null_with_the_reason() -> None:
    found = example(60).figures()["scores"]["trajectory"]
    assert found["tpr_at_fpr_01"] is None
    assert found["tpr_at_fpr_01_ci"] is None
    assert "non-members cannot show" in found["tpr_at_fpr_01_reason"]
    assert "100 can" in found["tpr_at_fpr_01_reason"]


def test_the_worst_score_pays_for_those_tried_beside_it() -> None:
    tried = example()
    alone = Scored(tried.member, True, {"trajectory": tried.scores["trajectory"]}).figures()
    together = tried.figures()
    assert together["worst_score"]["name"] in ("final_margin", "trajectory")
    assert together["worst_score"]["tried"] == 2
    # Alone, the same score has a narrower interval: a correction for two widens it.
    name = together["worst_score"]["name"]
    by_itself = Scored(tried.member, True, {name: tried.scores[name]}).figures()["worst_score"]["auc_ci"]
    assert together["worst_score"]["auc_ci"][0] < by_itself[0]
    same = Scored(tried.member, True, {f"{n}": tried.scores["trajectory"] for n in ("trajectory", "final_margin")})
    assert same.figures()["epsilon_lower"] < alone["epsilon_lower"]


def test_what_the_server_sees_stands_apart_and_changes_nothing_of_a_clients_figures() -> None:
    clients = example()
    mine = {name: clients.scores[name] for name in ("final_margin", "trajectory")}
    alone = Scored(clients.member, True, mine).figures()
    seen = {"update_regression": clients.member * 1.0, "fedmia": clients.scores["fedmia"]}
    both = Scored(clients.member, True, mine | seen).figures()
    epsilon = ("epsilon_lower", "epsilon_bounds", "epsilon_ceiling", "epsilon_reachable", "epsilon_guesses")
    decisive = ("worst_score", *epsilon)
    assert {key: both[key] for key in decisive} == {key: alone[key] for key in decisive}
    assert "server" not in alone
    server = Scored(clients.member, True, seen).figures()
    assert both["server"] == {key: server[key] for key in decisive}
    assert both["server"]["worst_score"]["name"] == "update_regression"
    assert both["server"]["worst_score"]["auc"] == 1.0
    assert both["server"]["epsilon_lower"] > both["epsilon_lower"]
    assert "epsilon_lower_reason" in Scored(clients.member, False, mine | seen).figures()["server"]


def test_epsilon_is_claimed_only_where_coins_made_the_members() -> None:
    assert example(coins=True).figures()["epsilon_lower"] > 0.5
    even = example(coins=False).figures()
    assert even["epsilon_lower"] is None
    assert "coin" in even["epsilon_lower_reason"]
    assert even["epsilon_ceiling"] > 4


@pytest.mark.parametrize(
    ("coins", "low", "valid"), [(False, 0.55, False), (False, 0.45, True), (True, 0.55, True), (False, 0.1, True)]
)
def test_records_that_tell_members_by_themselves_make_a_run_invalid_unless_coins_did(coins, low, valid) -> None:
    found = example(coins=coins).validity(Blind(Estimate(low + 0.05, low, low + 0.1)))
    assert found["valid"] is valid
    assert bool(found["reasons"]) is not valid
    assert set(found["permutation_p"]) == {"final_margin", "trajectory", "fedmia"}
    assert found["permutation_p"]["trajectory"] < 0.01 < found["permutation_p"]["fedmia"]


def test_too_few_of_a_kind_make_a_run_invalid() -> None:
    scored = Scored(np.array([True, True, True]), True, {"final_margin": np.arange(3.0)})
    found = scored.validity(None)
    assert not found["valid"]
    assert "0 non-members" in found["reasons"][0]
    assert found["blind_auc"] is None
    json.dumps(scored.figures(), allow_nan=False)


def test_the_blind_baseline_is_computed_once_for_the_same_targets(monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(assessment, "_remembered", {})
    monkeypatch.setattr(
        assessment, "blind_baseline", lambda *a: calls.append(a) or Blind(Estimate(len(calls) / 10, 0.0, 1.0))
    )
    records, labels = np.zeros((6, 2), dtype=np.float32), np.arange(6)
    member = np.arange(6) < 3
    assert blind(records, labels, member) == blind(records.copy(), labels.copy(), member.copy())
    assert len(calls) == 1
    others = [(records + 1, labels, member), (records, labels[::-1], member), (records, labels, ~member)]
    assert len({blind(*given).auc.value for given in others} | {0.1}) == 4


def test_scores_that_need_nothing_but_margins_are_all_there_and_references_bring_the_others() -> None:
    rng = np.random.default_rng(0)
    margins = rng.normal(size=(5, 30))
    assert set(observed_scores(margins)) >= {"final_margin", "mean_margin", "trajectory"}
    references, included = rng.normal(size=(4, 30)), rng.random((4, 30)) < 0.5
    found = referenced_scores(margins, references, included)
    assert set(found) >= {"lira_offline", "lira_online", "rmia", "bavaria"}
    assert not set(found) & set(observed_scores(margins))
    assert "lira_online" not in referenced_scores(margins, references, np.zeros_like(included))


def test_no_posterior_claims_more_than_the_number_of_non_members_can_show():
    member = np.arange(400) < 200
    plain = member * 100.0 + np.random.default_rng(0).normal(size=400)
    for prior in (0.5, 0.001):
        found = posteriors(plain, member, prior)
        odds = found / (1 - found)
        assert odds.max() <= 201 * prior / (1 - prior) * (1 + 1e-9)
        assert odds.min() >= prior / (1 - prior) / 201 * (1 - 1e-9)
    assert posteriors(plain, member)[member].mean() > 0.9
