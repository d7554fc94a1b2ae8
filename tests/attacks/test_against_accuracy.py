"""A little is enough, inner product manipulation and mimic: attacks on accuracy, for comparison."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from scapegoat import attacks
from scapegoat.attacks.alie import largest_z
from scapegoat.errors import OptionError
from tests.attacks.views import mlp, rows, view
from tests.reference import attacks as reference
from tests.reference.peers import most_outlying


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 5), st.integers(1, 6))
def test_alie_sends_the_mean_less_z_deviations(seed: int, z: float, peers: int) -> None:
    seen = view(mlp(seed=seed), peers=peers, senders=2)
    crafted = attacks.get("alie", z=z).craft(seen)
    expected = reference.alie(rows(seen.peers), z)
    for sent in rows(crafted.updates):
        np.testing.assert_allclose(sent, expected, rtol=1e-4, atol=1e-6 * (1 + z) * np.abs(expected).max())
    assert crafted.updates.shape[0] == 2


@pytest.mark.parametrize(
    ("n", "m", "share"), [(50, 24, 24 / 26), (51, 12, 25 / 39), (10, 4, 4 / 6), (10, 6, 3 / 4), (20, 15, 4 / 5)]
)
def test_z_is_what_the_papers_formula_says(n: int, m: int, share: float) -> None:
    """phi(z) = (n - m - s)/(n - m) with s = floor(n/2 + 1) - m, and s = 1 where the hostile are the majority."""
    assert norm.cdf(largest_z(n, m)) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(8, 1), (10, 1), (4, 3), (2, 1), (10, 8)])
def test_too_few_to_win_with_the_outermost_honest_send_the_mean(n: int, m: int) -> None:
    assert largest_z(n, m) == 0


def test_alie_takes_z_from_the_clients_it_sees_and_has() -> None:
    seen = view(peers=6, senders=4)
    crafted = attacks.get("alie").craft(seen)
    assert crafted.notes["z"] == pytest.approx(largest_z(10, 4))
    assert crafted.notes["angle"] >= 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.01, 10), st.integers(1, 6))
def test_ipm_sends_the_peers_mean_backwards(seed: int, scale: float, peers: int) -> None:
    seen = view(mlp(seed=seed), peers=peers, senders=3)
    crafted = attacks.get("ipm", scale=scale).craft(seen)
    expected = -scale * np.mean(rows(seen.peers), axis=0)
    for sent in rows(crafted.updates):
        np.testing.assert_allclose(sent, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_mimic_copies_the_peer_farthest_along_what_sets_them_apart(seed: int, peers: int) -> None:
    seen = view(mlp(seed=seed), peers=peers, senders=3)
    outlying = most_outlying(np.array(rows(seen.peers)))
    ordered = sorted(outlying)
    assume(peers == 1 or ordered[-1] - ordered[-2] > 1e-4 * ordered[-1])
    crafted = attacks.get("mimic").craft(seen)
    chosen = int(np.argmax(outlying)) if peers > 1 else 0
    assert crafted.notes["mimicked"] == chosen
    assert torch.equal(crafted.updates, seen.peers[chosen].expand(3, -1))


def test_mimic_copies_the_peer_it_is_told_to() -> None:
    seen = view(peers=4)
    assert torch.equal(attacks.get("mimic", peer=2).craft(seen).updates[0], seen.peers[2])
    assert torch.equal(attacks.get("mimic", peer=9).craft(seen).updates[0], seen.peers[3])


@pytest.mark.parametrize("name", ["alie", "ipm", "mimic"])
def test_without_a_usable_peer_they_train_honestly(name: str) -> None:
    seen = view(peers=torch.full((2, mlp().d), torch.nan))
    assert torch.equal(attacks.get(name).craft(seen).updates, seen.honest())


@pytest.mark.parametrize(("name", "options"), [("alie", {"z": -1}), ("ipm", {"scale": 0}), ("mimic", {"peer": -1})])
def test_wrong_options_name_their_key(name: str, options: dict[str, float]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        attacks.get(name, **options)
