"""Rounds that no attack likes: it sends finite updates of the right shape and does not fall over."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from scapegoat import attacks
from scapegoat.modelling.flat_model import FlatModel
from tests.attacks.views import ATTACKS, made, mlp, view

crafting = [name for name in ATTACKS if name != "passive"]


def check(crafted: attacks.Crafted, senders: int, d: int) -> None:
    assert crafted.updates.shape == (senders, d)
    assert crafted.updates.dtype == torch.float32
    assert crafted.updates.isfinite().all()
    assert all(math.isfinite(value) for value in crafted.notes.values())
    assert all(type(value) is float for value in crafted.notes.values())


def bad_peers(kind: str) -> Tensor:
    peers = view().peers.clone()
    if kind == "one_nan":
        peers[1, 3] = torch.nan
    elif kind == "all_nan":
        peers[:] = torch.nan
    elif kind == "infinite":
        peers[0, 0] = torch.inf
    elif kind == "huge":
        peers[0] *= 1e30
    elif kind == "one_zero":
        peers[2] = 0
    elif kind == "all_zero":
        peers[:] = 0
    elif kind == "identical":
        peers[:] = peers[0].clone()
    elif kind == "opposite":
        peers = torch.stack([peers[0], -peers[0]])
    elif kind == "one":
        peers = peers[:1]
    elif kind == "none":
        peers = peers[:0]
    return peers


@pytest.mark.parametrize("local", ["gradient", "epochs"])
@pytest.mark.parametrize(
    "kind",
    ["one_nan", "all_nan", "infinite", "huge", "one_zero", "all_zero", "identical", "opposite", "one", "none"],
)
@pytest.mark.parametrize("name", crafting)
def test_odd_peers(name: str, kind: str, local: str) -> None:
    seen = view(peers=bad_peers(kind), local=local)
    check(made(name).craft(seen), 1, seen.gradients.model.d)


@pytest.mark.parametrize("rule", ["atm", "median"])
@pytest.mark.parametrize("kind", ["one_nan", "all_zero", "identical", "one"])
def test_odd_peers_with_a_target_rule(kind: str, rule: str) -> None:
    seen = view(peers=bad_peers(kind))
    check(attacks.get("adaptive", target_rule=rule).craft(seen), 1, seen.gradients.model.d)


@pytest.mark.parametrize("name", crafting)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e20])
def test_a_model_that_has_diverged(name: str, value: float) -> None:
    model = mlp()
    parameters = torch.full((model.d,), value)
    peers = torch.randn(4, model.d)
    seen = view(model, peers, parameters=parameters, honest=lambda: torch.zeros(1, model.d))
    check(made(name).craft(seen), 1, model.d)


@pytest.mark.parametrize("name", crafting)
def test_gradients_that_are_all_zero(name: str) -> None:
    """A head without weights and with one class too certain: nothing flows back."""
    module = nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 1))
    model = FlatModel(module, (10,), 1)
    seen = view(model, torch.zeros(3, model.d), honest=lambda: torch.zeros(1, model.d))
    check(made(name).craft(seen), 1, model.d)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("senders", [1, 3])
def test_every_sender_gets_a_row(name: str, senders: int) -> None:
    seen = view(senders=senders)
    crafted = made(name).craft(seen)
    check(crafted, senders, seen.gradients.model.d)
    if name not in ("passive", "colluders"):
        assert torch.equal(crafted.updates, crafted.updates[:1].repeat(senders, 1))


@pytest.mark.parametrize("name", crafting)
def test_after_local_epochs_crafted_updates_have_the_scale_of_the_peers(name: str) -> None:
    seen = view(peers=view().peers * 300, local="epochs")
    crafted = made(name).craft(seen)
    assert crafted.notes["scaled"] == 1.0
    # A shadow goes as far as its copy of the rule, which clips, lets it.
    assert 0.05 < crafted.notes["norm_ratio"] < (11 if name == "shadow" else 3)
    without = made(name).craft(view(peers=0, local="epochs"))
    norm = float(view().honest()[0].norm())
    assert float(without.updates[0].norm()) == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("name", ATTACKS)
def test_crafting_is_reproducible_and_does_not_touch_what_it_was_shown(name: str) -> None:
    seen = view()
    before = [t.clone() for t in (seen.peers, seen.parameters, seen.targets.x, seen.mask.x, seen.wrong_labels)]
    first = made(name).craft(seen)
    again = made(name).craft(view())
    assert torch.equal(first.updates, again.updates)
    assert first.notes == again.notes
    after = (seen.peers, seen.parameters, seen.targets.x, seen.mask.x, seen.wrong_labels)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
