"""A whole round beside the bare forward and backward passes of its clients, in PyTorch's default memory layout."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scapegoat import models
from scapegoat.aggregation import get as get_rule
from scapegoat.attacks import get as get_attack
from scapegoat.data import Dataset, DataSpec
from scapegoat.data.partitions import IID
from scapegoat.data.splits import split
from scapegoat.experiments.bench.timing import interleaved
from scapegoat.federation import FederationSetting, Simulation

CASES: dict[str, dict[str, Any]] = {
    "mlp_0.3M": {"model": {"name": "mlp"}, "shape": (446,), "classes": 30, "limit": 1.5},
    "mlp_3.2M": {"model": {"name": "mlp"}, "shape": (6170,), "classes": 100, "limit": 1.5},
    "resnet20": {"model": {"name": "resnet20"}, "shape": (3, 32, 32), "classes": 10, "limit": 1.15},
}


def run(quick: bool = False) -> dict[str, Any]:
    """Ratios for each model size, and how a round's time grows with the clients picked and the clients that exist."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        repeats = 5 if quick else 15
        figures = {name: _case(case, repeats) for name, case in CASES.items()}
        return {"threads": 1, "rounds": figures, "clients": _growth(3 if quick else 9)}
    finally:
        torch.set_num_threads(threads)


def simulation(
    model: dict[str, Any], shape: tuple[int, ...], classes: int, clients: int = 10, fraction: float = 0.8
) -> Simulation:
    """A federation without a hostile client, on made-up records of the shape."""
    generator = torch.Generator().manual_seed(0)
    records = max(4000, clients * 64 + 1000)
    # Tabular benchmarks are sparse and binary, as the data sets that they stand for.
    dense = len(shape) == 3
    x = (torch.rand(records, *shape, generator=generator) < (0.5 if dense else 0.05)).to(torch.uint8)
    dataset = Dataset("made up", x, torch.randint(classes, (records,), generator=generator), classes)
    setting = FederationSetting(clients=clients, malicious=0, fraction=fraction, rounds=10_000)
    splits = split(dataset, DataSpec(), partition=IID(), benign=clients, targets=300, mask=300, seed=0)
    return Simulation(
        dataset=dataset,
        splits=splits,
        model=models.build(models.registry.parse(model), shape, classes, seed=0),
        setting=setting,
        attack=get_attack("passive"),
        rule=get_rule("fedavg"),
        evaluate_every=10,
        seed=0,
    )


def _case(case: dict[str, Any], repeats: int) -> dict[str, Any]:
    federation = simulation(case["model"], case["shape"], case["classes"])
    # Ten rounds at a time: the test accuracy is evaluated in one of ten.
    rounds = 10 if federation.model.d < 1_000_000 and len(case["shape"]) == 1 else 2
    batches = _batches(federation)

    def whole() -> None:
        for _ in range(rounds):
            federation.run_round()

    def bare() -> None:
        for _ in range(rounds):
            _passes(federation.model, batches)

    with _PeakMemory() as memory:
        federation.run_round()
    seconds = interleaved({"round": whole, "bare": bare}, repeats)
    floats = memory.peak / 4
    return {
        "parameters": federation.model.d,
        "round_seconds": seconds["round"] / rounds,
        "bare_seconds": seconds["bare"] / rounds,
        "ratio": seconds["round"] / seconds["bare"],
        "limit": case["limit"],
        "peak_extra_floats_per_parameter": floats / federation.model.d,
        "memory_limit": federation.setting.picked + 4,
    }


def _batches(federation: Simulation) -> list[tuple[Tensor, Tensor]]:
    rows = [federation.benign.batch(0, client) for client in federation.pick(0)]
    dataset = federation.dataset
    return [(dataset.inputs(r), dataset.y[r]) for r in rows]


def _passes(model: models.FlatModel, batches: list[tuple[Tensor, Tensor]]) -> None:
    model.module.train()
    for x, y in batches:
        torch.autograd.grad(F.cross_entropy(model.module(x), y), model.parameters)


def _growth(repeats: int) -> dict[str, Any]:
    """Seconds a round: 100 of 1,000 clients, 50 of 1,000, and 50 of 500."""
    settings = {"100 of 1000": (1000, 0.1), "50 of 1000": (1000, 0.05), "50 of 500": (500, 0.1)}
    runs = {
        name: simulation({"name": "mlp", "hidden": [64]}, (446,), 30, clients, fraction)
        for name, (clients, fraction) in settings.items()
    }
    seconds = interleaved({name: federation.run_round for name, federation in runs.items()}, repeats)
    return {
        "round_seconds": seconds,
        "twice_the_picked": seconds["100 of 1000"] / seconds["50 of 1000"],
        "twice_the_existing": seconds["50 of 1000"] / seconds["50 of 500"],
    }


class _PeakMemory:
    """Peak resident memory above where it started, sampled by a thread."""

    def __enter__(self) -> _PeakMemory:
        self._start = _resident()
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.peak = max(self.peak, _resident() - self._start)
            self._stop.wait(0.0005)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, _resident() - self._start)


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096
