"""FedPoisonMIA keeps within the peers' angles and does what its options say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat import attacks
from scapegoat.errors import OptionError
from tests.attacks.views import mlp, rows, samples, view
from tests.reference import attacks as reference
from tests.reference.gradients import sample_gradients


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 7), st.sampled_from([0.05, 0.2, 0.5, 1.0]))
def test_never_passes_the_largest_angle_between_peers_when_that_is_possible(
    seed: int, peers: int, gamma: float
) -> None:
    seen = view(mlp(seed=seed), peers)
    crafted = attacks.get("fedpoisonmia", gamma=gamma).craft(seen)
    bound = reference.angle_bound(rows(seen.peers))
    reached = reference.largest_angle(rows(crafted.updates)[0], rows(seen.peers))
    assert crafted.notes["angle"] == pytest.approx(reached, abs=1e-5)
    assert crafted.notes["bound"] == pytest.approx(bound, abs=1e-5)
    if crafted.notes["feasible"]:
        assert reached <= bound + 1e-4


def test_equals_the_paper_in_plain_loops() -> None:
    seen = view()
    model = seen.gradients.model
    masks = rows(sample_gradients(model, seen.parameters, seen.mask.x, seen.mask.y))
    attack = np.mean(rows(sample_gradients(model, seen.parameters, seen.targets.x, seen.wrong_labels)), axis=0)
    crafted = attacks.get("fedpoisonmia", gamma=0.3, alpha=0.7).craft(seen)
    chosen, infeasible, _ = reference.greedy(attack, masks, rows(seen.peers), 6, 0.7)
    assert list(crafted.masks) == chosen
    assert crafted.notes["infeasible_steps"] == infeasible
    want = reference.malicious(attack, masks, tuple(chosen), 0.7)
    np.testing.assert_allclose(crafted.updates[0].numpy(), want, atol=1e-6)


@pytest.mark.parametrize(("gamma", "count"), [(0.1, 2), (0.149, 2), (0.15, 3), (1.0, 20), (0.001, 1)])
def test_gamma_is_the_share_of_masks_rounded_down_but_never_none(gamma: float, count: int) -> None:
    crafted = attacks.get("fedpoisonmia", gamma=gamma).craft(view())
    assert len(crafted.masks) == len(set(crafted.masks)) == count


def test_random_selection_is_drawn_from_the_rounds_generator() -> None:
    attack = attacks.get("fedpoisonmia", gamma=0.25, selection="random")
    first = attack.craft(view(generator=torch.Generator().manual_seed(1)))
    again = attack.craft(view(generator=torch.Generator().manual_seed(1)))
    other = attack.craft(view(generator=torch.Generator().manual_seed(2)))
    assert first.masks == again.masks
    assert torch.equal(first.updates, again.updates)
    assert first.masks != other.masks


def test_greedy_reaches_farther_than_random_masks_do_on_average() -> None:
    greedy = attacks.get("fedpoisonmia", alpha=1.0, gamma=0.2).craft(view()).notes
    assert greedy["feasible"]
    attack = attacks.get("fedpoisonmia", alpha=1.0, gamma=0.2, selection="random")
    random = [attack.craft(view(generator=torch.Generator().manual_seed(seed))).notes for seed in range(20)]
    assert greedy["angle"] > np.mean([notes["angle"] for notes in random if notes["feasible"]])


@pytest.mark.parametrize("seed", range(6))
def test_refinement_never_makes_it_worse(seed: int) -> None:
    plain = attacks.get("fedpoisonmia").craft(view(mlp(seed=seed))).notes
    refined = attacks.get("fedpoisonmia", rounds_of_refinement=3).craft(view(mlp(seed=seed))).notes
    assert refined["feasible"] >= plain["feasible"]
    if plain["feasible"]:
        assert refined["angle"] >= plain["angle"] - 1e-5
    else:
        assert refined["feasible"] or refined["angle"] <= plain["angle"] + 1e-5


def test_match_norm_changes_the_norm_and_nothing_else() -> None:
    plain = attacks.get("fedpoisonmia").craft(view())
    matched = attacks.get("fedpoisonmia", match_norm=True).craft(view())
    median = float(np.median([np.linalg.norm(peer) for peer in rows(view().peers)]))
    assert float(matched.updates[0].double().norm()) == pytest.approx(median, rel=1e-5)
    assert matched.notes["norm_ratio"] == pytest.approx(1.0, rel=1e-5)
    assert plain.notes["norm_ratio"] != pytest.approx(1.0, rel=1e-3)
    assert matched.notes["angle"] == pytest.approx(plain.notes["angle"], abs=1e-6)
    assert matched.masks == plain.masks


def test_the_norm_objective_keeps_within_the_peers_distances() -> None:
    seen = view(peers=3 * view().peers)
    crafted = attacks.get("fedpoisonmia", objective="norm", gamma=1.0).craft(seen)
    assert crafted.notes["feasible"]
    peers = rows(seen.peers)
    farthest = max(reference.distance(rows(crafted.updates)[0], peer) for peer in peers)
    assert farthest <= reference.distance_bound(peers) * (1 + 1e-4)


@pytest.mark.parametrize("objective", ["angle", "norm"])
def test_after_local_epochs_the_update_has_the_scale_of_the_peers(objective: str) -> None:
    seen = view(peers=view().peers * 500, local="epochs")
    crafted = attacks.get("fedpoisonmia", objective=objective).craft(seen)
    assert crafted.notes["scaled"] == 1.0
    assert 0.2 < crafted.notes["norm_ratio"] < 5
    if objective == "angle":
        assert crafted.notes["norm_ratio"] == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("peers", [0, 1])
def test_without_two_peers_the_mask_gradient_is_sent(peers: int) -> None:
    seen = view(peers=peers)
    crafted = attacks.get("fedpoisonmia").craft(seen)
    want = seen.gradients.mean(seen.mask.x, seen.mask.y)
    assert torch.equal(crafted.updates[0], want)
    assert crafted.notes["unbounded"] == 1.0


def test_more_room_between_peers_lets_alpha_grow() -> None:
    """With peers that agree, the bound is tight and little attack fits; with peers that do not, alpha is at its end."""
    model = mlp()
    tight = torch.stack([view(model).peers[0] + 1e-3 * i * view(model).peers[1] for i in range(4)])
    wide = torch.randn(4, model.d, generator=torch.Generator().manual_seed(0))
    close = attacks.get("fedpoisonmia", gamma=0.5).craft(view(model, tight)).notes
    far = attacks.get("fedpoisonmia", gamma=0.5).craft(view(model, wide)).notes
    assert close["bound"] < far["bound"]
    assert not close["feasible"]
    assert far["feasible"]
    assert far["alpha"] > close["alpha"]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"gamma": 0}, "gamma"),
        ({"gamma": 1.1}, "gamma"),
        ({"alpha": -1}, "alpha"),
        ({"selection": "best"}, "selection"),
        ({"alpha_max": 0}, "alpha_max"),
        ({"trim": 1}, "trim"),
    ],
)
def test_wrong_options_are_named(options: dict, path: str) -> None:
    with pytest.raises(OptionError) as caught:
        attacks.get("fedpoisonmia", **options)
    assert caught.value.path.startswith(path)
    assert "\n" not in str(caught.value)


def test_identical_peers_leave_no_room_and_are_survived() -> None:
    seen = view()
    crafted = attacks.get("fedpoisonmia").craft(view(peers=seen.peers[:1].repeat(4, 1)))
    assert crafted.notes["bound"] == pytest.approx(0.0, abs=1e-6)
    assert not crafted.notes["feasible"]
    assert crafted.notes["infeasible_steps"] == len(crafted.masks)
    assert math.isfinite(crafted.notes["angle"])


def test_masks_need_not_be_many() -> None:
    model = mlp()
    one = samples(1, model.input_shape, model.classes, 9)
    assert attacks.get("fedpoisonmia").craft(view(model, mask=one)).masks == (0,)
