"""Passive, gradient ascent, AGREvader and the adaptive attack do what their papers say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scapegoat import aggregation, attacks
from scapegoat.attacks.adaptive import evade_atm
from scapegoat.errors import InputError, OptionError
from tests.attacks.views import mlp, rows, view
from tests.reference import attacks as reference


def test_passive_sends_honest_updates() -> None:
    seen = view(senders=3)
    assert torch.equal(attacks.get("passive").craft(seen).updates, seen.honest())


def test_gradient_ascent_climbs_the_targets_loss() -> None:
    seen = view()
    gradient = seen.gradients.mean(seen.targets.x, seen.targets.y)
    assert torch.equal(attacks.get("gradient_ascent").craft(seen).updates[0], -gradient)
    assert torch.allclose(attacks.get("gradient_ascent", scale=2.5).craft(seen).updates[0], -2.5 * gradient)
    moved = view(parameters=seen.parameters + 0.1 * gradient / gradient.norm())
    loss = torch.nn.functional.cross_entropy
    model = seen.gradients.model
    before = loss(model.logits(seen.parameters, seen.targets.x), seen.targets.y)
    assert loss(model.logits(moved.parameters, seen.targets.x), seen.targets.y) > before


@pytest.mark.parametrize("seed", range(8))
def test_agrevader_blends_as_much_attack_as_the_distances_hide(seed: int) -> None:
    seen = view(mlp(seed=seed), peers=2 + seed % 4)
    crafted = attacks.get("agrevader").craft(seen)
    mask = seen.gradients.mean(seen.mask.x, seen.mask.y)
    attack = seen.gradients.mean(seen.targets.x, seen.wrong_labels)
    share = crafted.notes["lambda"]
    torch.testing.assert_close(crafted.updates[0], share * attack + (1 - share) * mask, rtol=1e-4, atol=1e-7)
    peers = rows(seen.peers)
    bound = reference.distance_bound(peers)
    if crafted.notes["feasible"]:
        assert max(reference.distance(rows(crafted.updates)[0], peer) for peer in peers) <= bound * (1 + 1e-5)
        for more in np.linspace(share + 1e-4, 1, 50) if share < 1 - 1e-4 else []:
            blend = rows((more * attack + (1 - more) * mask)[None])[0]
            assert max(reference.distance(blend, peer) for peer in peers) > bound * (1 - 1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 1), st.integers(1, 6), st.sampled_from(["gradient", "epochs"]))
def test_blend_mixes_wrong_labels_into_honest_training(seed: int, share: float, peers: int, local: str) -> None:
    seen = view(mlp(seed=seed), peers=peers, local=local, senders=2)
    crafted = attacks.get("blend", share=share).craft(seen)
    attack = rows(seen.gradients.mean(seen.targets.x, seen.wrong_labels)[None])[0]
    mask = rows(seen.gradients.mean(seen.mask.x, seen.mask.y)[None])[0]
    want = reference.blend(attack, mask, share, rows(seen.peers))
    np.testing.assert_allclose(rows(crafted.updates)[0], want, rtol=1e-4, atol=1e-5 * np.linalg.norm(want))
    assert torch.equal(crafted.updates[0], crafted.updates[1])


@pytest.mark.parametrize("name", ["blend", "tangent"])
@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "half"])
def test_a_share_is_between_nothing_and_all(name: str, share: object) -> None:
    with pytest.raises(OptionError) as caught:
        attacks.get(name, share=share)
    assert caught.value.path == "share"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 8), st.integers(1, 3), st.integers(1, 3))
def test_adaptive_is_algorithm_3(seed: int, peers: int, trim: int, senders: int) -> None:
    rng = np.random.default_rng(seed)
    benign = [rng.normal(size=15) + 1 for _ in range(peers)]
    attack = rng.normal(size=15) - 1
    want, steps = reference.adaptive(attack, benign, trim, senders)
    assume(steps <= 20)  # after many halvings the candidates differ by less than rounding, and ties go either way
    stack = np.stack([*benign, attack])
    weights, taken, _ = evade_atm(stack @ stack.T, trim, senders, 50)
    assert taken == steps
    np.testing.assert_allclose(weights @ stack, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_atm_keeps_what_the_adaptive_attack_sends(seed: int) -> None:
    seen = view(mlp(seed=seed), peers=7, trim=1)
    crafted = attacks.get("adaptive").craft(seen)
    answer = aggregation.get("atm", trim=1)(torch.cat([seen.peers, crafted.updates]))
    assert bool(answer.kept[-1]) == bool(crafted.notes["evades"])
    assert crafted.notes["evades"]


@pytest.mark.parametrize("rule", ["atm", "median", "multi_krum", "norm_clipping", "fedavg"])
def test_aimed_at_a_rule_it_moves_that_rule_at_least_as_far_as_algorithm_3(rule: str) -> None:
    seen = view(peers=7)
    direction = seen.gradients.mean(seen.targets.x, seen.wrong_labels).double()
    target = aggregation.parse(rule)

    def moved(sent: torch.Tensor) -> float:
        return float(target(torch.cat([seen.peers, sent])).update.double() @ direction)

    aimed = attacks.get("adaptive", target_rule=rule).craft(seen)
    plain = attacks.get("adaptive").craft(seen)
    assert aimed.notes["gain"] > 0
    assert moved(aimed.updates) >= moved(plain.updates) - 1e-9
    assert moved(aimed.updates) > moved(seen.honest())


@pytest.mark.parametrize("rule", ["fltrust", "fang", "deepsight", "dp", "memory_atm"])
def test_rules_that_need_the_servers_side_run_on_the_attackers_imitation_of_it(rule: str) -> None:
    aimed = attacks.get("adaptive", target_rule=rule, evaluations=4).craft(view(peers=7))
    assert "strength" in aimed.notes
    assert aimed.notes["gain"] >= 0


def test_any_defense_of_the_spec_can_be_aimed_at() -> None:
    pipeline = [{"name": "norm_clipping"}, {"name": "atm", "trim": 2}]
    attack = attacks.get("adaptive", target_rule=pipeline)
    assert attack.canonical()["target_rule"][1]["trim"] == 2
    assert "strength" in attack.craft(view(peers=7)).notes
    again = attacks.registry.parse(attack.canonical())
    assert again == attack


def test_a_rule_that_refuses_to_run_leaves_algorithm_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise InputError("too few")

    monkeypatch.setattr(type(aggregation.get("median")), "__call__", refuse)
    crafted = attacks.get("adaptive", target_rule="median").craft(view())
    assert "steps" in crafted.notes
    assert torch.equal(crafted.updates, attacks.get("adaptive").craft(view()).updates)


@pytest.mark.parametrize("rule", ["amt", {"name": "atm", "trimm": 1}, 3, [{"name": "atm"}, {"name": "x"}]])
def test_an_unknown_rule_is_refused_when_the_spec_is_read(rule: object) -> None:
    with pytest.raises(OptionError) as caught:
        attacks.get("adaptive", target_rule=rule)
    assert caught.value.path.startswith("target_rule")
