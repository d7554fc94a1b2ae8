"""What a verdict rests on is said: epsilon beside its ceiling, the checks, and what cannot be resolved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scapegoat import report
from scapegoat.membership.assessment import Scored
from scapegoat.membership.epsilon import one_run, one_run_gaussian, reachable
from scapegoat.membership.metrics import Estimate
from scapegoat.report import grounds, payload
from scapegoat.report.facts import Facts
from scapegoat.report.model import Judgement
from scapegoat.report.refuting import by_summaries, by_targets
from tests.report import synthetic


def with_guards(folder: Path, blind: float = 0.5, **more: Any) -> report.Page:
    """Three runs of coins, with their guards and every figure of their scores."""
    for attack, defense in (("passive", "fedavg"), ("fedpoisonmia", "fedavg"), ("fedpoisonmia", "atm")):
        spec = synthetic.make_spec(attack, defense, rounds=40) | {"evaluation": {"design": "coin"}}
        summary = synthetic.write_run(folder, spec)
        path = next(path for path in folder.rglob("summary.json") if summary["spec_hash"] in str(path))
        targets = report.build(folder).studies[0].matrix.cells[attack, defense].runs[0].told
        assert targets is not None
        found = Scored(targets.member, True, {"final_margin": targets.score(None)})
        validity = {**found.validity(None), "blind_auc": blind, "blind_auc_ci": [blind - 0.05, blind + 0.05]}
        path.write_text(
            json.dumps(
                {**summary, "membership": {**summary["membership"], **found.figures()}, "validity": validity, **more}
            )
        )
    return report.build(folder)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> report.Page:
    return with_guards(tmp_path_factory.mktemp("guards"))


def test_epsilon_is_shown_under_every_rule_beside_the_most_that_the_targets_can_show(page: report.Page) -> None:
    verdict = page.studies[0].verdict
    averaging = verdict.of("fedavg")
    assert averaging is not None
    assert averaging.epsilon_lower is not None
    assert f"epsilon is at least {averaging.epsilon_lower:.2f} under FedAvg" in verdict.text
    # Two runs under FedAvg, a score each: what perfect scores would show pays for both, as the bound does.
    assert f"so many targets can show {reachable(150, 150, confidence=0.975):.2f} at most" in verdict.text
    shown = report.to_html(page)
    assert f"ε at least {averaging.epsilon_lower:.2f}" in shown


def test_a_bound_of_nothing_is_not_printed_as_a_bound() -> None:
    judged = [Judgement("fedavg", "closed", epsilon_lower=0.0)]
    (sentence,) = grounds.shown(judged)
    assert sentence == "In terms of differential privacy these runs refute no epsilon at all."


def test_a_rules_epsilon_pays_for_all_of_its_runs(page: report.Page) -> None:
    runs = [cell.runs[0] for (_, defense), cell in page.studies[0].matrix.cells.items() if defense == "fedavg"]
    alone = max(one_run(run.told.score(None), run.told.member).epsilon for run in runs if run.told is not None)
    averaging = page.studies[0].verdict.of("fedavg")
    assert averaging is not None
    assert averaging.epsilon_lower is not None
    assert 0 < averaging.epsilon_lower < alone


def test_summaries_alone_give_the_same_epsilon_as_the_targets(page: report.Page) -> None:
    runs = [cell.runs[0] for (_, defense), cell in page.studies[0].matrix.cells.items() if defense == "fedavg"]
    exact = by_targets([(run.facts, run.told) for run in runs])
    assert exact is not None
    assert exact.lower > 0
    assert by_summaries([run.facts for run in runs]) == exact
    # Without what was guessed the largest bound of several runs would not be one over all of them.
    older = [replace(run.facts, guessed=None) for run in runs]
    least = by_summaries(older)
    assert least is not None
    assert least.lower == min(run.epsilon_lower or 0.0 for run in older)


def test_where_noise_is_accounted_for_the_bounds_for_gaussian_noise_stand_beside_it(tmp_path: Path) -> None:
    private = with_guards(tmp_path, privacy={"unit": "record", "epsilon": 60.0, "delta": 1e-5})
    runs = [cell.runs[0] for (_, d), cell in private.studies[0].matrix.cells.items() if d == "fedavg" and cell.runs]
    judged = private.studies[0].verdict.of("fedavg")
    assert judged is not None
    assert judged.epsilon_lower is not None
    found = judged.epsilon_if_gaussian
    # Both runs were looked at, so each bound is the larger one at half of the error.
    alone = [one_run_gaussian(run.told.score(None), run.told.member, confidence=0.975) for run in runs if run.told]
    assert len(alone) == 2
    assert found["gaussian_noise"] == max(bound.epsilon for bound in alone)
    assert judged.epsilon_lower < found["gaussian_noise"] < found["gaussian_noise_by_auc"] < 60
    told = private.studies[0].verdict.text
    assert (
        f"they show at least {found['gaussian_noise']:.2f} and at least {found['gaussian_noise_by_auc']:.2f} if "
        "moreover targets do not sway each other." in told
    )
    (listed, *_) = [r for r in report.verdict_values(private.studies[0].verdict)["rules"] if r["defense"] == "fedavg"]
    assert listed["epsilon_if_gaussian"] == dict(found)
    assert (listed["epsilon_unit"], listed["epsilon_refuted"]) == ("record", False)
    # Summaries alone do not say which run was lucky: the smaller one holds without a correction.
    from_summaries = by_summaries([run.facts for run in runs])
    assert from_summaries is not None
    smaller = min(run.facts.bounds["gaussian_noise"] for run in runs)
    assert from_summaries.if_gaussian["gaussian_noise"] == smaller


def test_bounds_for_gaussian_noise_are_not_shown_of_rules_that_add_none(page: report.Page) -> None:
    judged = page.studies[0].verdict.of("fedavg")
    assert judged is not None
    assert not judged.epsilon_if_gaussian
    assert "Gaussian" not in page.studies[0].verdict.text


@pytest.mark.parametrize(("accounted", "doubted"), [(4.0, False), (2.0, True)])
def test_a_bound_that_assumes_gaussian_noise_is_a_doubt_and_no_proof(accounted: float, doubted: bool) -> None:
    bounds = {"gaussian_noise": 1.5, "gaussian_noise_by_auc": 2.5}
    judged = Judgement("fedavg", "closed", epsilon=accounted, epsilon_unit="record", refutable=accounted)
    told = " ".join(grounds.accounted([replace(judged, epsilon_lower=0.5, epsilon_if_gaussian=bounds)]))
    assert "at least 1.50 and at least 2.50 if moreover targets do not sway each other" in told
    assert ("more than was accounted for" in told) == doubted
    assert "that is a bug" not in told


def test_a_rule_that_was_merely_watched_has_its_epsilon_said() -> None:
    watched = Judgement("fedavg", "unjudged", epsilon_lower=1.25, epsilon_reachable=5.2)
    (sentence,) = grounds.shown([watched])
    assert "epsilon is at least 1.25 under FedAvg" in sentence
    assert "so many targets can show 5.20 at most" in sentence
    both = grounds.shown([watched, Judgement("atm", "open", epsilon_lower=0.5)])
    assert both == grounds.shown([Judgement("atm", "open", epsilon_lower=0.5)])


def test_the_checks_are_shown_with_their_figures(page: report.Page) -> None:
    text = page.studies[0].verdict.text
    assert "A fair coin per target decided whether it was trained on." in text
    assert "tells members with an AUC of 0.50 [0.45, 0.55]: that is chance." in text
    assert "150 non-members can show a false alarm rate of 1%, not one of 0.1%." in text


def test_a_cell_lists_every_score_with_what_cannot_be_resolved_and_every_bound(page: report.Page) -> None:
    run: dict[str, Any] = json.loads(payload.to_json(page))["studies"][0]["cells"][1][0]["runs"][0]
    ((name, seat, _, _, rare, p),) = run["scores"]
    assert (name, seat, rare, p) == ("final_margin", "client", "not resolvable", "0.001")
    (bounds, *_) = run["grounds"]
    for assumption in grounds.BOUNDS.values():
        assert assumption in bounds


@pytest.mark.parametrize(("others", "says"), [(0, ""), (60, "cannot show a false alarm rate of 1%"), (1000, "")])
def test_what_the_non_members_can_resolve_is_said_where_it_matters(others: int, says: str) -> None:
    told = " ".join(grounds.checked([], others))
    assert says in told if says else not told


def test_records_that_tell_members_are_not_called_chance() -> None:
    (sentence,) = grounds.checked([Facts(blind=Estimate(0.7, 0.66, 0.74))], 0)
    assert sentence.endswith("0.70 [0.66, 0.74]: more than chance.")


def test_a_run_that_accounts_for_an_epsilon_says_so_in_its_cell() -> None:
    told = grounds.of_run(Facts(epsilon=2.5, epsilon_unit="record", epsilon_lower=1.25))
    assert told == (
        "Epsilon is at least 1.25 (95% sure, delta 1e-5).",
        "The run accounts for an epsilon of 2.50 per record.",
    )


def test_without_coins_no_epsilon_is_claimed(tmp_path: Path) -> None:
    for attack in ("passive", "fedpoisonmia"):
        synthetic.write_run(tmp_path, synthetic.make_spec(attack, "fedavg", rounds=40))
    text = report.build(tmp_path).studies[0].verdict.text
    assert "differential privacy, epsilon" not in text
    assert "fair coin" not in text
