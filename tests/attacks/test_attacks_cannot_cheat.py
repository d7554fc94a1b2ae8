"""An attack sees its view and nothing else: no membership, no rule, nobody else's data."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scapegoat import attacks
from scapegoat.attacks import Attack, AttackerView, Crafted, Samples
from scapegoat.federation.attacker import Attacker
from scapegoat.federation.simulation import Simulation
from scapegoat.randomness import numpy_generator
from tests.attacks.reachable import reachable
from tests.attacks.views import ATTACKS, made, mlp, view
from tests.federation.small import federation

SEED = 918_273_645
"""A run's seed that no count, size or index is mistaken for."""

FAST = {"optimizer": "sgd", "lr": 1.0}
EPOCHS = {"name": "epochs", "epochs": 2, "lr": 0.05}


def test_a_view_has_no_field_for_what_it_must_not_tell() -> None:
    fields = {field.name for field in dataclasses.fields(AttackerView)}
    assert fields == {
        "round",
        "parameters",
        "gradients",
        "targets",
        "wrong_labels",
        "mask",
        "peers",
        "honest",
        "senders",
        "local",
        "generator",
        "trim",
        "clients",
        "memory",
    }
    assert {field.name for field in dataclasses.fields(Samples)} == {"x", "y"}


def test_crafting_takes_the_view_alone() -> None:
    for name, cls in attacks.registry.classes():
        assert list(inspect.signature(cls.craft).parameters) == ["self", "view"], name
        assert issubclass(cls, Attack)


class Spy(Attack):
    """Uses all that a view offers, keeps it, and sends what its clients would honestly have sent."""

    def craft(self, view: AttackerView) -> Crafted:
        honest = view.honest()
        view.gradients.per_sample(view.mask.x, view.mask.y).dot(view.peers)
        view.gradients.mean(view.targets.x, view.wrong_labels)
        views.append(view)
        return Crafted(honest)


views: list[AttackerView] = []


def spied(**setting: Any) -> tuple[Simulation, dict[str, Any]]:
    """A federation in its second round, and all that its attacker can reach from the view of that round."""
    views.clear()
    spy = Spy(targets=30, mask=20, knowledge=setting.pop("knowledge", "full"))
    simulation = federation(attack=spy, rule="atm", fraction=1.0, seed=SEED, **setting)
    simulation.run_round()
    simulation.run_round()
    return simulation, reachable(views[-1])


SEATS = pytest.mark.parametrize(
    "setting",
    [
        {},
        {"knowledge": "partial"},
        {"local": EPOCHS},
        {"local": EPOCHS, "knowledge": "partial"},
        {"model": {"name": "resnet20", "norm": "batch"}, "shape": (1, 16, 16)},
        {"schedule": {"name": "async", "tau_max": 1}},
    ],
    ids=["gradient", "partial", "epochs", "epochs-partial", "batch-norm", "async"],
)


@SEATS
def test_no_road_leads_from_a_view_to_the_seed_of_the_run(setting: dict[str, Any]) -> None:
    simulation, found = spied(**setting)
    order = simulation.cast.target_order.numpy()
    numbers = {road: thing for road, thing in found.items() if isinstance(thing, int)}
    numbers |= {r: g.initial_seed() for r, g in found.items() if isinstance(g, torch.Generator)}
    for road, number in numbers.items():
        assert number != SEED, road
        guess = numpy_generator(number, "target order").permutation(len(order))
        assert not np.array_equal(guess, order), road
    assert any(road.startswith("view.honest.seeds") for road in numbers)  # the walk does find what is there


@SEATS
def test_no_road_leads_from_a_view_to_membership_the_rule_or_anybodys_data(setting: dict[str, Any]) -> None:
    simulation, found = spied(**setting)
    splits, server, benign = simulation.cast.splits, simulation.server, simulation.cast.benign
    forbidden = [simulation, simulation.cast.attacker, simulation.setting, server, server.rule, benign]
    forbidden += [splits, simulation.cast.dataset]
    known = {id(thing) for thing in forbidden}
    arrays = [t.numpy() if isinstance(t, Tensor) else t for t in _rows_and_labels(simulation)]
    private = [
        simulation.cast.dataset.x,
        simulation.cast.dataset.y,
        simulation.cast.test.x,
        server.validation.x,
        server.validation.y,
    ]
    memory = {t.untyped_storage().data_ptr() for t in private}
    for road, thing in found.items():
        assert id(thing) not in known, road
        if isinstance(thing, Tensor):
            assert thing.untyped_storage().data_ptr() not in memory, road
        if isinstance(thing, Tensor | np.ndarray | list | tuple):
            assert not any(_same(thing, secret) for secret in arrays), road
    assert views[-1].trim is None


def _rows_and_labels(simulation: Simulation) -> list[Any]:
    """Everything that says, or once said, which records are whose."""
    splits = simulation.cast.splits
    rows = [splits.members, splits.non_members, splits.targets, splits.target_clients[splits.member], *splits.shards]
    trained = [simulation.cast.dataset.inputs(shard) for shard in splits.shards]
    batches = [
        simulation.cast.benign.batch(round_, client) for round_ in range(2) for client in range(len(splits.shards))
    ]
    return [simulation.cast.member, simulation.cast.target_order, *rows, *trained, *batches]


def _same(thing: Any, secret: Any) -> bool:
    if isinstance(thing, list | tuple):
        if len(thing) != len(secret) or not all(isinstance(item, int | float) for item in thing):
            return False
    elif thing.shape != secret.shape:
        return False
    plain = thing.detach().numpy() if isinstance(thing, Tensor) else np.asarray(thing)
    return bool((plain == secret).all())


class Holder:
    """Something with a secret in a slot and a method."""

    __slots__ = ("secret",)

    def __init__(self, secret: object) -> None:
        self.secret = secret

    def ask(self) -> int:
        return 0


@dataclasses.dataclass
class Kept:
    secret: object


@pytest.mark.parametrize("road", ["slot", "bound self", "closure", "default", "partial", "field", "item", "tensor"])
def test_the_walk_finds_a_secret_at_the_end_of_every_road(road: str) -> None:
    secret = torch.arange(3)

    def closed() -> Tensor:
        return secret

    def defaulted(value: Tensor = secret) -> Tensor:
        return value

    behind = {
        "slot": Holder(secret),
        "bound self": Holder(secret).ask,
        "closure": closed,
        "default": defaulted,
        "partial": functools.partial(print, secret),
        "field": Kept(secret),
        "item": {"deep": [(secret,)]},
        "tensor": secret[1:],
    }
    assert any(thing is secret for thing in reachable(Kept(behind[road])).values())


@pytest.mark.parametrize("local", [{"name": "gradient"}, EPOCHS], ids=["gradient", "epochs"])
@pytest.mark.parametrize("name", ATTACKS)
def test_who_is_a_member_does_not_change_a_bit(
    name: str, local: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same federation sends the same updates, whatever the evaluator holds to be the truth about the targets."""
    sent: list[Crafted] = []
    craft = Attacker.craft

    def kept(*given: Any) -> Crafted:
        crafted = craft(*given)
        sent.append(dataclasses.replace(crafted, updates=crafted.updates.clone()))
        return crafted

    monkeypatch.setattr(Attacker, "craft", kept)
    crafted, accuracies, scores = [], [], []
    for shuffled in (False, True):
        sent.clear()
        attack = made(name, targets=200, mask=20)
        simulation = federation(attack=attack, rule="atm", fraction=1.0, local=local, server=FAST, seed=2)
        if shuffled:
            shuffled_truth = np.random.default_rng(3).permutation(simulation.cast.member)
            simulation.cast = dataclasses.replace(simulation.cast, member=shuffled_truth)
        accuracies.append([simulation.run_round().attack_accuracy for _ in range(4)])
        scores.append(simulation.margins)
        crafted.append(list(sent))
    assert len(crafted[0]) == len(crafted[1]) == 4
    for one, other in zip(*crafted, strict=True):
        assert torch.equal(one.updates, other.updates)
        assert (one.notes, one.masks) == (other.notes, other.masks)
    assert np.array_equal(*scores)
    assert accuracies[0] != accuracies[1]  # the shuffle did reach the evaluator


def test_only_the_adaptive_attack_reads_the_trim() -> None:
    for name in ATTACKS:
        known, unknown = (made(name).craft(view(trim=trim)) for trim in (3, None))
        if name != "adaptive":
            assert torch.equal(known.updates, unknown.updates)
    spread = torch.linspace(0.005, 0.06, 7)[:, None]
    around = view().peers[:1] + spread * torch.randn(7, mlp().d, generator=torch.Generator().manual_seed(0))
    few, many = (attacks.get("adaptive").craft(view(peers=around, trim=trim)) for trim in (1, 3))
    assert 0 < few.notes["steps"] < many.notes["steps"]
