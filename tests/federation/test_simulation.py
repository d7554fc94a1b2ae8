import dataclasses

import numpy as np
import pytest
import torch

from scapegoat import models
from scapegoat.aggregation import get as get_rule
from scapegoat.aggregation.stack import collect
from scapegoat.attacks import Crafted
from scapegoat.attacks import get as get_attack
from scapegoat.attacks.base import Attack
from scapegoat.data.base import Dataset, DataSpec
from scapegoat.data.splits import split
from scapegoat.federation import FederationSetting, Simulation


class Watching(Attack):
    """Keeps every view, and sends what its clients would honestly have sent."""

    def craft(self, view):
        seen.append(view)
        return Crafted(view.honest())


seen = []


@pytest.fixture(autouse=True)
def _fresh():
    seen.clear()


def dataset(shape=(12,), records=600, classes=4):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((records, *shape), dtype=np.float32))
    return Dataset("toy", x, torch.from_numpy(rng.integers(0, classes, records)), classes)


def federation(*, attack="passive", rule="fedavg", model=None, shape=(12,), seed=0, data=None, **setting):
    data = dataset(shape) if data is None else data
    options = FederationSetting(**{"clients": 8, "malicious": 2, "rounds": 4, "batch_size": 8, **setting})
    attack = get_attack(attack, targets=30, mask=20) if isinstance(attack, str) else attack
    splits = split(
        data,
        DataSpec(validation=10),
        partition=options.partition,
        benign=options.benign,
        targets=attack.targets,
        mask=attack.mask,
        seed=seed,
    )
    return Simulation(
        dataset=data,
        splits=splits,
        model=models.build(models.registry.parse(model or {"name": "mlp", "hidden": [6]}), shape, data.classes, seed=1),
        setting=options,
        attack=attack,
        rule=get_rule(rule) if isinstance(rule, str) else rule,
        evaluate_every=2,
        seed=seed,
    )


def test_a_round_of_fedavg_is_one_optimizer_step_along_the_mean_gradient():
    simulation = federation(malicious=0, fraction=1.0, server={"optimizer": "sgd", "lr": 0.5})
    before = simulation.server.parameters.clone()
    gradients = []
    for client in range(8):
        rows = simulation.benign.batch(0, client)
        x, y = simulation.dataset.inputs(rows), simulation.dataset.y[rows]
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
    rounds = [simulation.pick(r) for r in range(30)]
    assert all(len(set(r)) == picked for r in rounds)
    assert picked == 8 or len({tuple(r) for r in rounds}) > 1


def test_every_client_is_picked_equally_often():
    simulation = federation(fraction=0.5)
    counts = np.bincount(np.concatenate([simulation.pick(r) for r in range(2000)]), minlength=8)
    assert counts.min() > 900
    assert counts.max() < 1100


def test_batches_come_from_the_clients_own_records_without_repeats():
    simulation = federation()
    for client in range(6):
        rows = simulation.benign.batch(3, client).tolist()
        assert len(set(rows)) == len(rows) == 8
        assert set(rows) <= set(simulation.splits.shards[client].tolist())
        assert rows != simulation.benign.batch(4, client).tolist()


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
            rows = simulation.benign.batch(round_, client)
            x, y = simulation.dataset.inputs(rows), simulation.dataset.y[rows]
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


def test_the_view_carries_no_membership_no_rule_and_nobody_elses_data():
    attack = Watching(targets=30, mask=20)
    simulation = federation(attack=attack, rule="atm", fraction=1.0)
    simulation.run_round()
    forbidden = {id(simulation), id(simulation.server), id(simulation.server.rule), id(simulation.splits)}
    forbidden |= {id(simulation.dataset), id(simulation.dataset.x), id(simulation.benign), id(simulation.member)}
    forbidden |= {id(s) for s in simulation.splits.shards}
    reached = list(walk(seen[0]))
    assert not forbidden & {id(thing) for thing in reached}
    private = {t.data_ptr() for t in (simulation.dataset.x, simulation.test.x, simulation.server.validation[0])}
    assert not private & {t.untyped_storage().data_ptr() for t in reached if isinstance(t, torch.Tensor)}
    assert seen[0].trim is None


def walk(thing, depth=12, known=None):
    """Everything that can be reached from an object through attributes, items and closures."""
    known = set() if known is None else known
    if depth == 0 or id(thing) in known or isinstance(thing, (str, bytes, int, float, type(None), type)):
        return
    known.add(id(thing))
    yield thing
    inner = []
    if dataclasses.is_dataclass(thing):
        inner += [getattr(thing, f.name) for f in dataclasses.fields(thing)]
    if isinstance(thing, dict):
        inner += [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple, set)):
        inner += list(thing)
    inner += list(getattr(thing, "__dict__", {}).values())
    inner += [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
    if isinstance(thing, torch.Tensor) and thing._base is not None:
        inner.append(thing._base)
    for item in inner:
        yield from walk(item, depth - 1, known)


@pytest.mark.parametrize("name", ["gradient_ascent", "agrevader", "adaptive", "fedpoisonmia"])
def test_shuffled_membership_leaves_every_crafted_update_bit_identical(name):
    attack = get_attack(name, targets=30, mask=20)
    one, other = (federation(attack=attack, rule="atm", fraction=1.0) for _ in range(2))
    other.member = np.random.default_rng(3).permutation(other.member)
    for _ in range(3):
        one.run_round()
        other.run_round()
    assert torch.equal(one.server.parameters, other.server.parameters)
    assert torch.equal(one._updates, other._updates)


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


@pytest.mark.parametrize("rule", ["fang", "fltrust"])
def test_rules_with_server_data_never_touch_test_or_target_data(rule):
    clean = dataset()
    plain = federation(rule=rule, data=clean, attack="fedpoisonmia")
    labels = clean.y.clone()
    untouchable = torch.cat([plain.splits.test, plain.splits.non_members])
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


def test_a_step_in_which_every_update_is_malformed_changes_nothing():
    simulation = federation()
    before = simulation.server.parameters.clone()
    broken = collect(torch.full((3, simulation.model.d), float("nan")))
    aggregate = simulation.server.step(broken, [0, 1, 2], [1, 1, 1], 0)
    assert not aggregate.kept.any()
    assert aggregate.rejected.all()
    assert torch.equal(simulation.server.parameters, before)
