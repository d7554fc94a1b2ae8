"""What the server does without asking anything of clients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scapegoat import protections
from scapegoat.aggregation import Aggregate, Rule
from scapegoat.combining.stack import Stack
from scapegoat.optimizers import OptimizerOptions
from scapegoat.protections import Look, ServerProtection
from tests.federation.small import federation
from tests.reference.protections import OPTIMIZERS, decayed


class Noted(Rule):
    """The mean; keeps every aggregate."""

    def aggregate(self, stack: Stack, context: Any) -> Aggregate:
        aggregates.append(stack.mean())
        return stack.aggregate(stack.mean())


aggregates: list[torch.Tensor] = []


@pytest.mark.parametrize(("optimizer", "decoupled"), [*OPTIMIZERS, ("sgd", True)])
@pytest.mark.parametrize("local", ["gradient", {"name": "epochs", "lr": 0.05}])
def test_weight_decay_is_that_of_pytorchs_optimizers(optimizer: str, decoupled: bool, local: Any) -> None:
    aggregates.clear()
    simulation = federation(
        rule=Noted(),
        local=local,
        server={"optimizer": optimizer, "lr": 0.1},
        protect=[{"name": "weight_decay", "rate": 0.2, "decoupled": decoupled}],
    )
    start = simulation.server.parameters.clone()
    for _ in range(4):
        simulation.run_round()
    # Of plain SGD the two kinds are the same.
    expected = decayed(start, aggregates, optimizer, 0.1, 0.2, decoupled and optimizer != "sgd")
    torch.testing.assert_close(simulation.server.parameters, expected, rtol=1e-4, atol=1e-6)
    without = decayed(start, aggregates, optimizer, 0.1, 0.0, False)
    assert not torch.allclose(simulation.server.parameters, without, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("last", [0.0, 0.3])
@pytest.mark.parametrize(("optimizer", "decoupled"), OPTIMIZERS)
def test_cooling_is_pytorchs_cosine_annealing_over_all_rounds(optimizer: str, decoupled: bool, last: float) -> None:
    aggregates.clear()
    simulation = federation(
        rule=Noted(),
        rounds=5,
        server={"optimizer": optimizer, "lr": 0.1},
        protect=[
            {"name": "weight_decay", "rate": 0.2, "decoupled": decoupled},
            {"name": "cooling", "last": last},
        ],
    )
    start = simulation.server.parameters.clone()
    for _ in range(5):
        simulation.run_round()
    expected = decayed(start, aggregates, optimizer, 0.1, 0.2, decoupled, last)
    torch.testing.assert_close(simulation.server.parameters, expected, rtol=1e-4, atol=1e-6)
    without = decayed(start, aggregates, optimizer, 0.1, 0.2, decoupled)
    assert not torch.allclose(simulation.server.parameters, without, rtol=1e-3, atol=1e-3)


def test_rules_that_try_candidates_try_them_with_the_steps_of_their_round() -> None:
    simulation = federation(rounds=4, server={"optimizer": "sgd", "lr": 0.1}, protect=["cooling"])
    server, update = simulation.server, torch.randn(simulation.model.d)
    for _ in range(3):
        simulation.run_round()
    # The last step was that of the third round: half of the cosine's way is behind it.
    torch.testing.assert_close(server._candidate(update), server.parameters - 0.05 * update)


def test_decay_leaves_the_aggregate_and_the_clients_model_as_they_are() -> None:
    update, parameters = torch.ones(3), torch.tensor([1.0, -2.0, 4.0])
    for decoupled in (False, True):
        protection = protections.get("weight_decay", rate=0.5, decoupled=decoupled)
        assert isinstance(protection, ServerProtection)
        protection.before_step(parameters.clone(), update, lr=0.1)
        assert update.tolist() == [1.0, 1.0, 1.0]


def test_stale_clients_still_start_from_the_model_that_they_were_given() -> None:
    simulation = federation(
        schedule={"name": "async", "tau_max": 2},
        protect=[{"name": "weight_decay", "rate": 0.5, "decoupled": True}],
    )
    given = simulation.server.parameters
    before = given.clone()
    simulation.run_round()
    assert torch.equal(given, before)
    assert not torch.equal(simulation.server.parameters, before)


def test_rules_that_try_candidates_try_them_with_the_decay() -> None:
    simulation = federation(server={"optimizer": "sgd", "lr": 0.1}, protect=[{"name": "weight_decay", "rate": 0.2}])
    server = simulation.server
    update = torch.randn(simulation.model.d)
    expected = server.parameters - 0.1 * (update + 0.2 * server.parameters)
    torch.testing.assert_close(server._candidate(update), expected)


def test_a_round_that_keeps_nobody_decays_nothing() -> None:
    class Nobody(Rule):
        def aggregate(self, stack: Stack, context: Any) -> Aggregate:
            return stack.nothing()

    simulation = federation(rule=Nobody(), protect=["weight_decay"])
    before = simulation.server.parameters.clone()
    simulation.run_round()
    assert torch.equal(simulation.server.parameters, before)


def stops(losses: list[float], reported: list[float] | None = None, **options: Any) -> int | None:
    """The round after which training ends."""
    protection = protections.get("early_stopping", **options)
    assert isinstance(protection, ServerProtection)
    state: dict[str, torch.Tensor] = {}
    for round_, loss in enumerate(losses):
        told = None if reported is None else reported[round_]
        if protection.stops(Look(round_, told, lambda loss=loss: loss, state)):
            return round_
    return None


def test_training_ends_after_as_many_rounds_without_improvement_as_there_is_patience() -> None:
    assert stops([3, 2, 1, 1.5, 1.2, 1.1], patience=3) == 5
    assert stops([3, 2, 1, 1.5, 1.2, 0.9, 1, 1], patience=3) is None
    assert stops([3, 2.95, 2.9, 2.85], patience=2, least=0.1) == 2
    assert stops([2, float("nan"), float("nan")], patience=2) == 2


def test_training_ends_once_a_gap_to_the_reported_loss_has_lasted() -> None:
    validation = [3.0, 2.0, 1.9, 1.8, 1.7, 1.6]
    reported = [3.0, 1.0, 1.8, 0.8, 0.7, 0.6]
    assert stops(validation, reported, patience=2, gap=0.5) == 4
    assert stops(validation, reported, patience=2) is None
    assert stops(validation, None, patience=2, gap=0.5) is None
    assert stops(validation, [float("nan")] * 6, patience=2, gap=0.5) is None


def test_a_server_that_has_stopped_keeps_its_model_and_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = federation(rounds=8, protect=[{"name": "early_stopping", "patience": 1, "least": 100.0}])
    simulation.run_round()
    second = simulation.run_round()
    assert simulation.server.stopped
    assert second.defense_notes["validation_loss"] > 0
    model, margins = simulation.server.parameters.clone(), simulation.margins[1].copy()
    while not simulation.done:
        record = simulation.run_round()
        assert (record.clients, record.loss, record.attack_auc) == ([], None, second.attack_auc)
    assert torch.equal(simulation.server.parameters, model)
    assert (simulation.margins[2:] == margins).all()
    assert simulation.records[-1].test_accuracy == second.test_accuracy
    assert len(list(simulation.picked)) == 2


def test_the_optimizer_is_told_nothing_new_without_protections() -> None:
    plain, decayed_by_nothing = federation(), federation(protect=[{"name": "weight_decay", "rate": 0.0}])
    for simulation in (plain, decayed_by_nothing):
        simulation.run_round()
    assert torch.equal(plain.server.parameters, decayed_by_nothing.server.parameters)
    assert plain.setting.server == OptimizerOptions()


def test_training_ends_once_the_servers_own_records_have_been_told_apart_for_long_enough() -> None:
    def ends(aucs: list[float], **options: Any) -> int | None:
        protection = protections.get("early_stopping", patience=3, **options)
        assert isinstance(protection, ServerProtection)
        state: dict[str, torch.Tensor] = {}
        for round_, auc in enumerate(aucs):
            look = Look(round_, 1.0, lambda round_=round_: 1.0 / (round_ + 1), state, {}, lambda auc=auc: auc)
            if protection.stops(look):
                assert look.notes["own_records_auc"] == auc
                return round_
        return None

    assert ends([0.5, 0.7, 0.7, 0.7, 0.9], leakage=0.6) == 3
    assert ends([0.5, 0.7, 0.7, 0.6, 0.7, 0.7], leakage=0.6) is None
    assert ends([0.9] * 6) is None
    assert ends([float("nan")] * 6, leakage=0.6) is None


LEAKING = [{"name": "early_stopping", "patience": 1000, "leakage": 0.6}]


def test_half_of_the_servers_records_are_trained_on_with_a_clients_weight_and_half_are_kept_out() -> None:
    aggregates.clear()
    options: dict[str, Any] = {"rule": Noted(), "server": {"optimizer": "sgd", "lr": 0.5}}
    plain, planted = federation(**options), federation(protect=LEAKING, **options)
    server = planted.server
    both = torch.cat([server.planted.x, server.validation.x])
    assert sorted(both.tolist()) == sorted(plain.server.validation.x.tolist())
    assert abs(len(server.planted) - len(server.validation)) <= 1
    start = server.parameters.clone()
    own = server._own_update(server.planted, "planted", 0)
    record = planted.run_round()
    theirs = sum(planted.cast.sample_counts[c] for c in record.clients)
    count = len(server.planted)
    expected = start - 0.5 * (theirs * aggregates[-1] + count * own) / (theirs + count)
    torch.testing.assert_close(server.parameters, expected, rtol=1e-5, atol=1e-6)
    assert 0 <= record.defense_notes["own_records_auc"] <= 1


def test_what_is_memorised_of_the_servers_own_records_shows_and_nothing_shows_before_training() -> None:
    simulation = federation(
        rounds=150,
        protect=LEAKING,
        server={"optimizer": "adam", "lr": 0.02},
        model={"name": "mlp", "hidden": [64]},
        validation=100,
    )
    before = simulation.server._own_leakage()
    while not simulation.done:
        simulation.run_round()
    assert abs(before - 0.5) < 0.15
    last = simulation.records[-1]
    assert last.defense_notes["own_records_auc"] > 0.62
    assert abs(last.defense_notes["own_records_auc"] - (last.attack_auc or 0)) < 0.15  # what others' records leak


def test_a_federation_that_plants_goes_on_after_a_stop_with_the_same_numbers() -> None:
    def new() -> Any:
        return federation(rounds=6, protect=[{"name": "early_stopping", "patience": 4, "leakage": 0.5}])

    whole, first, second = new(), new(), new()
    while not whole.done:
        whole.run_round()
    for _ in range(3):
        first.run_round()
    second.restore({key: value.clone() for key, value in first.state().items()})
    while not second.done:
        second.run_round()
    assert torch.equal(whole.server.parameters, second.server.parameters)
    assert [r.defense_notes for r in whole.records] == [r.defense_notes for r in second.records]
