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
