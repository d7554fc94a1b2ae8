"""An attack sees its view and nothing else: no membership, no rule, nobody else's data."""

from __future__ import annotations

import dataclasses
import gc
import inspect

import pytest
import torch
from torch import Tensor

from scapegoat import attacks
from scapegoat.attacks import Attack, AttackerView, Samples
from scapegoat.gradients import GradientOracle
from tests.attacks.views import ATTACKS, mlp, samples, view


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
    }
    assert {field.name for field in dataclasses.fields(Samples)} == {"x", "y"}


def test_crafting_takes_the_view_alone() -> None:
    for name, cls in attacks.registry.classes():
        assert list(inspect.signature(cls.craft).parameters) == ["self", "view"], name
        assert issubclass(cls, Attack)


def reachable(start: object) -> list[Tensor]:
    """Every tensor that can be reached from an object through attributes, containers and closures."""
    found: list[Tensor] = []
    seen: set[int] = set()
    queue = [start]
    while queue:
        here = queue.pop()
        if id(here) in seen or inspect.ismodule(here) or isinstance(here, type):
            continue
        seen.add(id(here))
        if isinstance(here, Tensor):
            found.append(here)
        if inspect.isfunction(here):
            queue += [cell.cell_contents for cell in here.__closure__ or ()]
            continue
        queue += [other for other in gc.get_referents(here) if not inspect.ismodule(other)]
    return found


def test_benign_data_and_membership_are_not_reachable_from_what_an_attack_gets() -> None:
    """The types carry nothing: what is reachable is the attacker's data, the model, and the peers' updates."""
    model = mlp()
    benign = samples(8, model.input_shape, model.classes, 100)  # what the first peer trained on
    member = torch.arange(16) < 8
    vector = model.initial()
    peers = torch.stack([model.gradient(vector, benign.x, benign.y)[0] for _ in range(3)])
    own = samples(8, model.input_shape, model.classes, 5)
    seen = AttackerView(
        round=0,
        parameters=vector,
        gradients=GradientOracle(model, vector),
        targets=samples(16, model.input_shape, model.classes, 1),
        wrong_labels=torch.zeros(16, dtype=torch.long),
        mask=own,
        peers=peers,
        honest=lambda: model.gradient(vector, own.x, own.y)[0][None],
        senders=1,
        local="gradient",
        generator=torch.Generator(),
    )
    for name in ATTACKS:
        attacks.get(name).craft(seen)
    tensors = reachable(seen)
    assert any(torch.equal(t, own.x) for t in tensors)  # the walk does find what is there
    for secret in (benign.x, benign.y, member):
        assert not any(t.shape == secret.shape and torch.equal(t, secret) for t in tensors if t.dtype == secret.dtype)


@pytest.mark.parametrize("name", ATTACKS)
def test_who_is_a_member_does_not_change_a_bit(name: str) -> None:
    """The same view crafts the same update, whatever the evaluator holds to be the truth about the targets."""
    crafted = []
    for seed in (0, 1):
        truth = torch.rand(16, generator=torch.Generator().manual_seed(seed)) < 0.5  # the evaluator's, not the view's
        assert truth.any()
        crafted.append(attacks.get(name).craft(view()).updates)
    assert torch.equal(*crafted)


def test_only_the_adaptive_attack_reads_the_trim() -> None:
    for name in ATTACKS:
        known, unknown = (attacks.get(name).craft(view(trim=trim)) for trim in (3, None))
        if name != "adaptive":
            assert torch.equal(known.updates, unknown.updates)
    spread = torch.linspace(0.005, 0.06, 7)[:, None]
    around = view().peers[:1] + spread * torch.randn(7, mlp().d, generator=torch.Generator().manual_seed(0))
    few, many = (attacks.get("adaptive").craft(view(peers=around, trim=trim)) for trim in (1, 3))
    assert 0 < few.notes["steps"] < many.notes["steps"]
