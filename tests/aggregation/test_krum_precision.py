"""Krum on small updates of large weights picks what float64 picks; working on the weights does not."""

from __future__ import annotations

import pytest
import torch

from scapegoat.aggregation import krum, multi_krum
from scapegoat.aggregation.multi_krum import krum_order
from tests.aggregation.inputs import as_rows
from tests.reference import aggregation as reference

TRIALS, N, D = 20, 10, 2000


def trial(seed: int, size: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights of size one a coordinate, and updates of which the last is three times as far out as the others."""
    draw = torch.Generator().manual_seed(seed)
    updates = torch.randn(N, D, generator=draw) * size
    updates[-1] *= 3
    return torch.randn(D, generator=draw), updates


@pytest.mark.parametrize("size", [1e-6, 1e-5, 1e-3])
def test_picks_what_float64_picks_twenty_of_twenty(size: float) -> None:
    for seed in range(TRIALS):
        _, updates = trial(seed, size)
        rows = as_rows(updates)
        assert set(krum(updates).kept.nonzero().flatten().tolist()) == set(reference.krum_picks(rows, 1, 1))
        picked = set(multi_krum(updates, 1, 0.5).kept.nonzero().flatten().tolist())
        assert picked == reference.multi_krum(rows, 1, N // 2)[1]
        assert N - 1 not in picked


def test_updates_with_a_large_common_part_are_told_apart() -> None:
    """The part that all updates share cancels in a distance; float32 squares alone would drown it."""
    for seed in range(TRIALS):
        weights, updates = trial(seed, 1e-4)
        moved = (weights + updates).contiguous()
        picked = set(multi_krum(moved, 1, 0.5).kept.nonzero().flatten().tolist())
        assert picked == reference.multi_krum(as_rows(moved), 1, N // 2)[1]


def test_expanded_squares_of_weights_lose_the_outlier() -> None:
    """Why updates, not weights, are aggregated: the same trials with the distances of Flower's Multi-Krum."""
    flower = pytest.importorskip("flwr.serverapp.strategy.multikrum")
    records = pytest.importorskip("flwr.app")
    kept_outlier = 0
    for seed in range(TRIALS):
        weights, updates = trial(seed, 1e-6)
        sent = [records.ArrayRecord([(weights + u).numpy()]) for u in updates]
        distances = torch.from_numpy(flower.compute_distances(sent)).double()
        kept_outlier += N - 1 in krum_order(distances, 1, N // 2)
    assert kept_outlier > 0
