"""The benchmark measures what it says: the plain version chooses the same mask samples."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import attack


@pytest.mark.parametrize("density", [0.1, None])
def test_the_plain_version_finds_the_same_masks(monkeypatch: pytest.MonkeyPatch, density: float | None) -> None:
    small = {"model": {"name": "mlp", "hidden": [16]}, "shape": (30,), "classes": 4, "rounds": 2.5, "speedup": 40}
    monkeypatch.setattr(attack, "CASES", {"small": {**small, **({"density": density} if density else {})}})
    threads = torch.get_num_threads()
    figures = json.loads(json.dumps(attack.run(quick=True)))["cases"]["small"]
    assert figures["same_masks"] == 1
    assert figures["speedup"] == figures["one_at_a_time_seconds"] / figures["craft_seconds"]
    assert figures["honest_rounds"] == figures["craft_seconds"] / figures["honest_round_seconds"]
    assert figures["parameters"] == 30 * 16 + 16 + 16 * 4 + 4
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("figures", "holds"),
    [
        ({"honest_rounds": 1.5, "honest_rounds_limit": 1.6}, True),
        ({"honest_rounds": 1.7, "honest_rounds_limit": 1.6}, False),
        ({"honest_rounds": 1.5, "honest_rounds_limit": 1.6, "speedup": 39.0, "speedup_limit": 40}, False),
        ({"peak_extra_floats_per_parameter": 41.0, "memory_limit": 40}, False),
        ({"peak_extra_floats_per_parameter": None, "memory_limit": 40, "speedup": 41.0, "speedup_limit": 40}, True),
        ({"honest_rounds": 1.7}, None),
    ],
)
def test_the_verdict_is_on_every_limit_that_is_named(figures: dict[str, float | None], holds: bool | None) -> None:
    assert attack._verdict(figures).get("holds") is holds
