"""A whole round beside the bare forward and backward passes of its clients, in PyTorch's default memory layout.

With fixed routes, with those measured on this machine, and with every other one that was a candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.memory import peak_of_tensors
from benchmarks.timing import interleaved, log, with_threads
from scapegoat import models
from scapegoat.aggregation import get as get_rule
from scapegoat.attacks import get as get_attack
from scapegoat.combining.stack import stacked
from scapegoat.data import Dataset, DataSpec
from scapegoat.data.partitions import IID
from scapegoat.data.splits import split
from scapegoat.experiments.route_timing import training_candidates
from scapegoat.experiments.routes import measured, processor
from scapegoat.federation import FederationSetting
from scapegoat.federation.cast import cast
from scapegoat.federation.local import clients_at_once
from scapegoat.federation.simulation import Simulation
from scapegoat.kernels.routes import FIXED, Routes

CASES: dict[str, dict[str, Any]] = {
    "mlp_0.3M": {"model": {"name": "mlp"}, "shape": (446,), "classes": 30, "limit": 1.4},
    "mlp_3.2M": {"model": {"name": "mlp"}, "shape": (6170,), "classes": 100, "limit": 1.0},
    "resnet20": {"model": {"name": "resnet20"}, "shape": (3, 32, 32), "classes": 10, "limit": 1.25},
}
SLOWER = 1.05
"""How much longer the measured routes may take than the best of the candidates."""


def run(quick: bool = False, threads: int = 1) -> dict[str, Any]:
    """Ratios for each model size, and how a round's time grows with the clients picked and the clients that exist."""
    with with_threads(threads):
        repeats = 5 if quick else 15
        figures = {name: _case(name, case, repeats) for name, case in CASES.items()}
        return {"processor": processor(), "threads": threads, "rounds": figures, "clients": _growth(3 if quick else 9)}


def simulation(
    model: dict[str, Any],
    shape: tuple[int, ...],
    classes: int,
    clients: int = 10,
    fraction: float = 0.8,
    protect: tuple[Any, ...] = (),
) -> Simulation:
    """A federation without a hostile client, on made-up records of the shape."""
    generator = torch.Generator().manual_seed(0)
    records = max(4000, clients * 64 + 1000)
    # Tabular benchmarks are sparse and binary, as the data sets that they stand for.
    dense = len(shape) == 3
    x = (torch.rand(records, *shape, generator=generator) < (0.5 if dense else 0.05)).to(torch.uint8)
    dataset = Dataset("made up", x, torch.randint(classes, (records,), generator=generator), classes)
    setting = FederationSetting(clients=clients, malicious=0, fraction=fraction, rounds=10_000, protect=protect)
    splits = split(dataset, DataSpec(), partition=IID(), benign=clients, targets=300, mask=300, seed=0)
    everybody = cast(
        dataset=dataset,
        splits=splits,
        model=models.build(models.registry.parse(model), shape, classes, seed=0),
        setting=setting,
        attack=get_attack("passive"),
        rule=get_rule("fedavg"),
        seed=0,
    )
    return Simulation(everybody, evaluate_every=10)


def _case(name: str, case: dict[str, Any], repeats: int) -> dict[str, Any]:
    log.info("a round of %s", name)
    federation = simulation(case["model"], case["shape"], case["classes"])
    # Ten rounds at a time: the test accuracy is evaluated in one of ten.
    rounds = 10 if federation.model.d < 1_000_000 and len(case["shape"]) == 1 else 2
    batches = _batches(federation)

    choice = measured(federation.cast)
    routes = {"fixed": FIXED, "measured": choice.routes} | training_candidates(federation.cast)

    def whole(taken: Routes) -> Callable[[], None]:
        def call() -> None:
            federation.model.routes = taken
            for _ in range(rounds):
                federation.run_round()

        return call

    def bare() -> None:
        for _ in range(rounds):
            passes(federation.model, batches)

    seconds = interleaved({"bare": bare} | {name: whole(taken) for name, taken in routes.items()}, repeats)
    best = min(seconds[name] for name in routes)
    ratio, beside_best = seconds["measured"] / seconds["bare"], seconds["measured"] / best
    figures = {
        "parameters": federation.model.d,
        "round_seconds": seconds["fixed"] / rounds,
        "bare_seconds": seconds["bare"] / rounds,
        "ratio": seconds["fixed"] / seconds["bare"],
        "measured": {
            "routes": choice.routes.as_dict(),
            "candidates_milliseconds": choice.milliseconds,
            "round_seconds": seconds["measured"] / rounds,
            "ratio": ratio,
            "limit": case["limit"],
            "times_best_route": beside_best,
            "times_best_route_limit": SLOWER,
            "holds": ratio <= case["limit"] and beside_best <= SLOWER,
            "ratio_by_route": {name: seconds[name] / seconds["bare"] for name in routes},
        },
        "memory_limit": federation.setting.picked + 4,
    }
    return figures | memory(case)


def memory(case: dict[str, Any]) -> dict[str, Any]:
    """Floats a parameter in tensors at the peak of a round, above the data and the copies of it that are the batches.

    What is kept from round to round, and what comes and goes in the greediest part of a round: the updates, the
    server's step, an evaluation. Where a model convolves, that depends on the records more than on the parameters.
    """
    federation = simulation(case["model"], case["shape"], case["classes"])
    federation.run_round()
    server, d = federation.server, federation.model.d
    kept = federation.setting.picked + 1 + sum(t.numel() for t in server.optimizer_state.values()) / d
    picked = federation.setting.pick(federation.seed, 1)
    updates = torch.zeros(len(picked), d)
    taken = _batches(federation)
    batches = sum(x.numel() for x, _ in taken[: clients_at_once(d, taken[0][0].numel())])
    starts = [server.parameters] * len(picked)
    parts = {
        "updates": peak_of_tensors(lambda: federation.cast.benign.updates(1, picked, starts, updates)) / 4 - batches,
        "step": peak_of_tensors(lambda: server.step(stacked(updates), picked, [1] * len(picked), 1)) / 4,
        "targets": peak_of_tensors(lambda: federation.model.logits(server.parameters, federation.cast.targets.x)) / 4,
        "test": peak_of_tensors(lambda: federation.accuracy(federation.cast.test)) / 4,
    }
    return {"kept_floats_per_parameter": kept, "passing_floats_per_parameter": max(parts.values()) / d}


def _batches(federation: Simulation) -> list[tuple[Tensor, Tensor]]:
    rows = [federation.cast.benign.batch(0, client) for client in federation.setting.pick(federation.seed, 0)]
    dataset = federation.cast.dataset
    return [(dataset.inputs(r), dataset.y[r]) for r in rows]


def passes(model: models.FlatModel, batches: list[tuple[Tensor, Tensor]]) -> None:
    """The clients' forward and backward passes as plain PyTorch has them."""
    model.module.train()
    for x, y in batches:
        torch.autograd.grad(F.cross_entropy(model.module(x), y), model.parameters)


def _growth(repeats: int) -> dict[str, Any]:
    """Seconds per round: 100 of 1,000 clients, 50 of 1,000, and 50 of 500."""
    log.info("rounds of many clients")
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
