import dataclasses

import numpy as np
import pytest
import torch

from scapegoat.aggregation import parse as parse_rule
from scapegoat.attacks import Attack, Crafted
from scapegoat.attacks import get as get_attack
from scapegoat.combining.stack import stacked
from tests.federation.small import dataset, federation


class Watching(Attack):
    """Keeps every view, and sends what its clients would honestly have sent."""

    def craft(self, view):
        seen.append(view)
        return Crafted(view.honest())


seen = []


@pytest.fixture(autouse=True)
def _fresh():
    seen.clear()


def test_a_round_of_fedavg_is_one_optimizer_step_along_the_mean_gradient():
    simulation = federation(malicious=0, fraction=1.0, server={"optimizer": "sgd", "lr": 0.5})
    before = simulation.server.parameters.clone()
    gradients = []
    for client in range(8):
        rows = simulation.cast.benign.batch(0, client)
        x, y = simulation.cast.dataset.inputs(rows), simulation.cast.dataset.y[rows]
        gradients.append(simulation.model.gradient(before, x, y)[0].clone())
    simulation.run_round()
    torch.testing.assert_close(
        simulation.server.parameters, before - 0.5 * torch.stack(gradients).mean(0), rtol=1e-4, atol=1e-7
    )


def test_local_epochs_send_the_difference_that_training_made():
    simulation = federation(
        malicious=0,
        fraction=1.0,
        local={"name": "epochs", "epochs": 2, "lr": 0.1},
        server={"optimizer": "sgd", "lr": 1.0},
    )
    simulation.run_round()
    record = simulation.records[0]
    assert all(norm > 0 for norm in record.norm)
    losses = [simulation.run_round().loss for _ in range(3)]
    assert losses[-1] < record.loss


@pytest.mark.parametrize(("fraction", "picked"), [(0.8, 7), (0.5, 4), (0.01, 1), (1.0, 8)])
def test_the_server_picks_the_asked_share_of_clients_rounded_up(fraction, picked):
    simulation = federation(fraction=fraction)
    rounds = [simulation.setting.pick(simulation.seed, r) for r in range(30)]
    assert all(len(set(r)) == picked for r in rounds)
    assert picked == 8 or len({tuple(r) for r in rounds}) > 1


def test_every_client_is_picked_equally_often():
    simulation = federation(fraction=0.5)
    counts = np.bincount(
        np.concatenate([simulation.setting.pick(simulation.seed, r) for r in range(2000)]), minlength=8
    )
    assert counts.min() > 900
    assert counts.max() < 1100


def test_batches_come_from_the_clients_own_records_without_repeats():
    simulation = federation()
    for client in range(6):
        rows = simulation.cast.benign.batch(3, client).tolist()
        assert len(set(rows)) == len(rows) == 8
        assert set(rows) <= set(simulation.cast.splits.shards[client].tolist())
        assert rows != simulation.cast.benign.batch(4, client).tolist()


def test_a_stale_client_starts_from_the_model_of_tau_rounds_ago():
    simulation = federation(
        malicious=0, fraction=1.0, schedule={"name": "async", "tau_max": 2}, server={"optimizer": "sgd", "lr": 0.1}
    )
    models_seen = [simulation.server.parameters.clone()]
    for round_ in range(4):
        delays = simulation.setting.schedule.delays(simulation.seed, round_, list(range(8)))
        assert all(0 <= tau <= min(2, round_) for tau in delays)
        expected = []
        for client, tau in enumerate(delays):
            rows = simulation.cast.benign.batch(round_, client)
            x, y = simulation.cast.dataset.inputs(rows), simulation.cast.dataset.y[rows]
            expected.append(simulation.model.gradient(models_seen[-1 - tau], x, y)[0].clone())
        simulation.run_round()
        after = models_seen[-1] - 0.1 * torch.stack(expected).mean(0)
        torch.testing.assert_close(simulation.server.parameters, after, rtol=1e-4, atol=1e-7)
        models_seen.append(simulation.server.parameters.clone())


def test_a_buffer_steps_whenever_it_is_full_and_keeps_what_is_left_over():
    simulation = federation(fraction=1.0, schedule={"name": "async", "tau_max": 1, "buffer": 3})
    sizes = [len(simulation.run_round().clients) for _ in range(4)]
    assert sizes == [6, 9, 9, 6]  # 8 arrive a round: 2 wait, then 1, then 0
    assert simulation.server.steps == 10


def test_full_knowledge_shows_the_benign_updates_and_partial_knowledge_only_ones_own():
    for knowledge in ("full", "partial"):
        seen.clear()
        attack = Watching(knowledge=knowledge, targets=30, mask=20)
        simulation = federation(attack=attack, fraction=1.0)
        simulation.run_round()
        view = seen[0]
        if knowledge == "full":
            assert view.peers.shape[0] == 6
        else:
            assert torch.equal(view.peers, view.honest())
            assert view.peers.shape[0] == 2


def test_an_attack_before_its_first_round_behaves_honestly():
    late = get_attack("gradient_ascent", targets=30, mask=20, start_round=2)
    honest = get_attack("passive", targets=30, mask=20)
    one, other = federation(attack=late), federation(attack=honest)
    for _ in range(2):
        one.run_round()
        other.run_round()
    assert torch.equal(one.server.parameters, other.server.parameters)
    one.run_round()
    other.run_round()
    assert not torch.equal(one.server.parameters, other.server.parameters)


@pytest.mark.parametrize("local", [{"name": "gradient"}, {"name": "epochs"}], ids=["gradient", "epochs"])
@pytest.mark.parametrize("schedule", [{"name": "sync"}, {"name": "async", "buffer": 3}], ids=["sync", "async"])
@pytest.mark.parametrize("name", ["passive", "fedpoisonmia"])
def test_a_round_of_honest_training_records_where_it_lies_among_the_peers(name, schedule, local):
    attack = get_attack(name, targets=30, mask=20, start_round=1)
    simulation = federation(attack=attack, fraction=1.0, schedule=schedule, local=local)
    record = simulation.run_round()
    rows = simulation._updates.matrix().double()
    benign, sent = rows[:6], rows[6:]
    unit = rows / rows.norm(dim=1, keepdim=True)
    angles = (unit @ unit.T).clamp(-1, 1).arccos()
    assert record.attack_notes == {
        "angle": pytest.approx(float(angles[6:, :6].max()), abs=1e-5),
        "bound": pytest.approx(float(angles[:6, :6].max()), abs=1e-5),
        "norm_ratio": pytest.approx(float(sent.norm(dim=1).max() / np.median(benign.norm(dim=1))), rel=1e-5),
    }
    assert {"angle", "bound", "norm_ratio"} <= simulation.run_round().attack_notes.keys()


def test_a_round_without_the_attacker_records_nothing_about_it():
    simulation = federation(malicious=1, fraction=0.25, rounds=12)
    records = [simulation.run_round() for _ in range(12)]
    assert {any(record.malicious) for record in records} == {True, False}
    assert all(bool(record.attack_notes) == any(record.malicious) for record in records)


def test_with_partial_knowledge_honest_training_has_no_peers_to_be_measured_by():
    attack = get_attack("passive", targets=30, mask=20, knowledge="partial")
    assert federation(attack=attack, fraction=1.0).run_round().attack_notes == {}


@pytest.mark.parametrize("rule", ["fang", "fltrust"])
def test_rules_with_server_data_never_touch_test_or_target_data(rule):
    clean = dataset()
    plain = federation(rule=rule, data=clean, attack="fedpoisonmia")
    labels = clean.y.clone()
    untouchable = torch.cat([plain.cast.splits.test, plain.cast.splits.non_members])
    labels[untouchable] = (labels[untouchable] + 1) % 4
    poisoned = federation(rule=rule, data=dataclasses.replace(clean, y=labels), attack="passive")
    honest = federation(rule=rule, data=clean, attack="passive")
    for _ in range(4):
        poisoned.run_round()
        honest.run_round()
    assert torch.equal(poisoned.server.parameters, honest.server.parameters)


def test_batch_norm_statistics_follow_the_clients_and_are_used_in_evaluation():
    simulation = federation(
        model={"name": "resnet20", "norm": "batch"}, shape=(1, 16, 16), malicious=1, clients=3, rounds=2, batch_size=4
    )
    before = simulation.model.buffers()
    simulation.run_round()
    after = simulation.model.buffers()
    assert not torch.equal(before, after)
    assert torch.isfinite(after).all()


class Broken(Attack):
    """Sends nothing but NaN."""

    def craft(self, view):
        return Crafted(torch.full((view.senders, len(view.parameters)), float("nan")))


def test_malformed_updates_are_recorded_as_rejected_and_the_round_goes_on():
    simulation = federation(attack=Broken(targets=30, mask=20), fraction=1.0)
    record = simulation.run_round()
    assert record.rejected == [False] * 6 + [True] * 2
    assert record.kept == [True] * 6 + [False] * 2
    assert torch.isfinite(simulation.server.parameters).all()
    assert np.isfinite(record.mean_angle[:6]).all()


def test_what_is_not_finite_has_no_angle_on_record():
    broken = federation(attack=Broken(targets=30, mask=20), fraction=1.0).run_round()
    assert broken.attack_notes == {}
    simulation = federation(fraction=1.0)
    simulation.server.parameters.fill_(float("nan"))
    assert simulation.run_round().attack_notes == {}


def test_a_step_in_which_every_update_is_malformed_changes_nothing():
    simulation = federation()
    before = simulation.server.parameters.clone()
    broken = stacked(torch.full((3, simulation.model.d), float("nan")))
    aggregate = simulation.server.step(broken, [0, 1, 2], [1, 1, 1], 0)
    assert not aggregate.kept.any()
    assert aggregate.rejected.all()
    assert torch.equal(simulation.server.parameters, before)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"name": "atm", "trim": 2}, 2),
        ({"name": "atm", "trim": 0.1}, 1),
        ([{"name": "norm_clipping"}, {"name": "atm", "trim": 2}], 2),
        ({"name": "fedavg"}, None),
    ],
)
def test_the_adaptive_attack_is_told_the_trim_that_the_rule_uses(rule, told):
    assert federation(rule=parse_rule(rule), attack="adaptive").cast.attacker.trim == told
