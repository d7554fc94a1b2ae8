"""Runs small enough for tests, and what it means that two stores hold the same numbers."""

from __future__ import annotations

from typing import Any

from scapegoat.experiments import RunStore

DATA = {"name": "hospital", "records": 800, "features": 30, "classes": 4, "validation": 20}

# The same for a sweep on the command line.
SETTINGS = [
    "data.records=800",
    "data.features=30",
    "data.classes=4",
    "data.validation=20",
    "model.hidden=[16]",
    "attack.mask=20",
]


def spec(
    attack: str = "passive", defense: str = "fedavg", rounds: int = 3, seed: int = 0, **attack_options: Any
) -> dict:
    return {
        "seed": seed,
        "data": DATA,
        "model": {"name": "mlp", "hidden": [16]},
        "federation": {"rounds": rounds, "clients": 5},
        "attack": {"name": attack, "targets": 40, "mask": 20, **attack_options},
        "defense": {"name": defense},
    }


def specs(rounds: int = 3) -> list[dict]:
    return [spec(a, d, rounds) for a in ("passive", "fedpoisonmia") for d in ("fedavg", "atm", "median")]


def assert_same_numbers(one: RunStore, other: RunStore) -> None:
    """Every run exists once, whole, and equals the other store's bit for bit (but for the seconds it took)."""
    assert one.finished() == other.finished()
    for store in (one, other):
        assert store.damaged() == []
        assert sorted(p.name for p in store.runs.iterdir()) == store.finished(), "something was left behind"
    for name in one.finished():
        assert one.spec(name) == other.spec(name)
        assert one.rounds(name).equals(other.rounds(name))
        assert one.targets(name).equals(other.targets(name))
        summaries = [store.summary(name) for store in (one, other)]
        assert all(summary.pop("seconds") >= 0 for summary in summaries)
        assert summaries[0] == summaries[1]
