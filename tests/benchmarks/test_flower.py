"""The benchmark beside Flower's own strategies measures every rule that Flower has."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr")

from benchmarks import flower


def test_every_rule_of_flowers_is_measured_on_the_same_replies(monkeypatch):
    monkeypatch.setattr(flower, "SHAPES", {"w": (40, 30), "b": (40,)})
    monkeypatch.setattr(flower, "REPLIES", 24)
    figures = flower.run(quick=True)
    assert figures["parameters"] == 1240
    assert set(figures["rules"]) == {"fedavg", "median", "trimmed_mean", "multi_krum", "bulyan"}
    for rule in figures["rules"].values():
        assert rule["times_faster"] == pytest.approx(rule["flower"] / rule["scapegoat"])
