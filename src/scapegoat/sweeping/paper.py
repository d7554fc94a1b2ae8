"""The paper's setting, its names for things, and the numbers that it prints."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import Any

from scapegoat.sweeping.sweep import FIGURE_METRICS, Axis, Figure, Point, Sweep

DATA = ("texas100", "cifar10", "stl10", "fer2013")

# The setting of the main table: 10 clients, one of them malicious, 8 picked per round, batches of 64, Adam at 0.01.
SETTING: dict[str, Any] = {
    "federation.clients": 10,
    "federation.malicious": 1,
    "federation.fraction": 0.8,
    "federation.rounds": 800,
    "federation.batch_size": 64,
    "federation.server": {"optimizer": "adam", "lr": 0.01},
}

_DATA_LABELS = {
    "texas100": "Texas100",
    "cifar10": "CIFAR-10",
    "stl10": "STL10",
    "fer2013": "FER2013",
    "location30": "Location30",
    "purchase100": "Purchase100",
    "fashion_mnist": "Fashion-MNIST",
    "hospital": "Hospital",
}

_ATTACKS = {
    "passive": "Passive",
    "gradient_ascent": "GA",
    "agrevader": "AGREvader",
    "adaptive": "Adaptive",
    "fedpoisonmia": "FedPoisonMIA",
}

_DEFENSES = {
    "dp": "DP",
    "top_k": "Top-k",
    "fedavg": "FedAvg",
    "median": "Median",
    "trimmed_mean": "Trimmed-mean",
    "atm": "ATM",
    "fang": "Fang",
    "multi_krum": "Multi-Krum",
    "deepsight": "DeepSight",
}

# The tables were made with Krum's picks one after the other; the original scores once, and so does the rule by default.
_OPTIONS: dict[str, dict[str, Any]] = {"multi_krum": {"rescore": True}}

MAIN_DEFENSES = ("dp", "top_k", "fedavg", "median", "trimmed_mean", "atm")
FIGURE_DEFENSES = ("top_k", "fedavg", "trimmed_mean", "atm")


def data_label(name: str) -> str:
    """A data set as the paper writes it."""
    return _DATA_LABELS.get(name, name)


def attacks(*names: str) -> Axis:
    """The attacks of the paper, all five unless named."""
    chosen = names or tuple(_ATTACKS)
    return Axis("attack", "Attack", tuple(Point(n, _ATTACKS[n], {"attack.name": n}) for n in chosen))


def defense(name: str) -> dict[str, Any]:
    """A rule with the options that the paper's tables have, where those are not its defaults."""
    return {"name": name, **_OPTIONS.get(name, {})}


def defenses(*names: str) -> Axis:
    """Rules of the paper, with its options."""
    return Axis(
        "defense",
        "Defense",
        tuple(Point(n, _DEFENSES[n], {f"defense.{key}": value for key, value in defense(n).items()}) for n in names),
    )


def figure(name: str, title: str, about: str, axis: Axis, x_label: str, fit_rules: bool = False) -> Sweep:
    """One of the paper's figures: five attacks under four rules, along one more axis."""
    return Sweep(
        name=name,
        title=title,
        about=about,
        axes=(attacks(), defenses(*FIGURE_DEFENSES), axis),
        layout=Figure(panel="defense", line="attack", x=axis.name, x_label=x_label),
        base=SETTING,
        metrics=FIGURE_METRICS,
        fit_rules=fit_rules,
    )


def partitions() -> Axis:
    """IID, and the label bias of 0.5 that the paper calls Non-IID."""
    return Axis(
        "partition",
        "Partition",
        (
            Point("iid", "IID", {"federation.partition": {"name": "iid"}}),
            Point("non_iid", "Non-IID", {"federation.partition": {"name": "label_bias", "beta": 0.5}}),
        ),
    )


@cache
def printed(name: str) -> dict[tuple[str, str, str, str], float]:
    """The attack accuracies of one of the paper's tables by (data set, attack, defense, partition)."""
    text = resources.files("scapegoat.sweeping").joinpath(f"printed/{name}.csv").read_text(encoding="utf-8")
    return {
        (row["dataset"], row["attack"], row["defense"], row["partition"]): float(row["attack_accuracy"])
        for row in csv.DictReader(text.splitlines())
    }


def reference(table: str, data: str, tabular: bool) -> str | None:
    """The paper's data set to hold a data set against: itself, or the nearest kind that the table has."""
    known = {key[0] for key in printed(table)}
    if data in known:
        return data
    nearest = "texas100" if tabular else "cifar10"
    return nearest if nearest in known else None
