"""Crafting FedPoisonMIA beside an honest round, one client's training step, and the one-sample-at-a-time version."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.memory import extra_memory
from benchmarks.round import passes
from benchmarks.timing import interleaved, log, with_threads
from scapegoat import attacks, models
from scapegoat.attacks import AttackerView, Crafted, Samples
from scapegoat.data import Dataset
from scapegoat.experiments.route_timing import answered, crafting_questions
from scapegoat.experiments.routes import processor
from scapegoat.federation.clients import BenignClients
from scapegoat.federation.local import Gradient
from scapegoat.gradients import GradientOracle
from scapegoat.kernels.routes import FIXED, Routes
from scapegoat.models import FlatModel

CLIENTS, BATCH, PEERS = 8, 64, 7

# The tabular data sets are binary and sparse (Location30: 12% ones; 5% stands for wider ones). Dense ones are harder:
# inner products of 300 mask gradients with 8 vectors alone are twice the multiplications of a round, whoever does them.
CASES: dict[str, dict[str, Any]] = {
    "mlp_0.3M": {"model": "mlp", "shape": (446,), "classes": 30, "density": 0.12, "rounds": 2.5, "speedup": 40},
    "mlp_3.2M": {"model": "mlp", "shape": (6169,), "classes": 100, "density": 0.05, "rounds": 2.5, "speedup": 40},
    "mlp_0.3M_dense": {"model": "mlp", "shape": (446,), "classes": 30, "plain": False},
    "mlp_3.2M_dense": {"model": "mlp", "shape": (6169,), "classes": 100, "plain": False},
    "resnet20": {"model": "resnet20", "shape": (3, 32, 32), "classes": 10, "rounds": 1.6},
}
MEMORY_LIMIT = 40
"""Floats a parameter that crafting may need beside what it is given, for the MLPs."""

AT_MOST = {"honest_rounds_limit": "honest_rounds", "memory_limit": "peak_extra_floats_per_parameter"}
AT_LEAST = {"speedup_limit": "speedup"}
"""The limits, and the figures that they bound."""


def run(quick: bool = False, threads: int = 1) -> dict[str, Any]:
    """Ratios for each model, measured in one run; `quick` has fewer samples and repeats."""
    with with_threads(threads):
        cases = {name: _case(name, case, quick) for name, case in CASES.items()}
        return {"processor": processor(), "threads": threads, "cases": cases}


def _case(name: str, case: dict[str, Any], quick: bool) -> dict[str, Any]:
    log.info("crafting for %s", name)
    targets = masks = 60 if quick else 300
    model = models.build(models.registry.parse(case["model"]), case["shape"], case["classes"], seed=0)
    vector = model.initial()
    benign = _benign(model, case.get("density"))
    updates = torch.empty(CLIENTS, model.d)

    def honest_round() -> None:
        benign.updates(0, list(range(CLIENTS)), [vector] * CLIENTS, updates)

    def client_step() -> None:
        benign.updates(0, [0], [vector], updates[:1])

    rows = [benign.batch(0, client) for client in range(CLIENTS)]
    batches = [(benign.dataset.inputs(r), benign.dataset.y[r]) for r in rows]

    def plain_round() -> None:
        passes(model, batches)

    honest_round()
    hidden = _samples(model, targets, case.get("density"), 2)
    view = AttackerView(
        round=0,
        parameters=vector,
        gradients=GradientOracle(model, vector),
        targets=hidden,
        wrong_labels=(hidden.y + 1) % model.classes,
        mask=_samples(model, masks, case.get("density"), 3),
        peers=updates[:PEERS].clone(),
        honest=lambda: updates[PEERS:],
        senders=1,
        local="gradient",
        generator=torch.Generator().manual_seed(0),
    )
    attack = attacks.get("fedpoisonmia")
    wrong = Samples(hidden.x, view.wrong_labels)
    choice = answered(model, crafting_questions(model, vector, wrong, view.mask, view.peers))

    def crafted(routes: Routes) -> Crafted:
        model.routes = routes
        try:
            return attack.craft(view)
        finally:
            model.routes = FIXED

    chosen = crafted(choice.routes).masks
    tabular = len(case["shape"]) == 1
    repeats = 3 if quick else 15 if tabular else 7
    calls: dict[str, Callable[[], object]] = {"round": honest_round, "plain": plain_round, "step": client_step}
    calls |= {"craft": lambda: crafted(choice.routes), "fixed": lambda: crafted(FIXED)}
    seconds = interleaved(calls, repeats, warmup=2)
    figures: dict[str, Any] = {
        "parameters": model.d,
        "targets": targets,
        "masks": masks,
        "craft_seconds": seconds["craft"],
        "honest_round_seconds": seconds["round"],
        "plain_passes_seconds": seconds["plain"],
        "client_step_seconds": seconds["step"],
        "routes": choice.routes.as_dict(),
        "milliseconds_by_route": choice.milliseconds,
        "honest_rounds": seconds["craft"] / seconds["round"],
        "honest_rounds_by_fixed_routes": seconds["fixed"] / seconds["round"],
        "plain_passes": seconds["craft"] / seconds["plain"],
        "client_steps": seconds["craft"] / seconds["step"],
    }
    if "rounds" in case and not quick:
        figures["honest_rounds_limit"] = case["rounds"]
    if tabular:
        figures["peak_extra_floats_per_parameter"] = extra_memory(lambda: crafted(choice.routes), 4 * model.d)
        figures["memory_limit"] = MEMORY_LIMIT
    if case.get("plain", True):
        started = time.perf_counter()
        plain = one_at_a_time(view, count=len(chosen))
        slow = time.perf_counter() - started
        figures["one_at_a_time_seconds"] = slow
        figures["speedup"] = slow / seconds["craft"]
        if "speedup" in case and not quick:
            figures["speedup_limit"] = case["speedup"]
        figures["same_masks"] = len(set(plain) & set(chosen)) / len(chosen)
    return figures | _verdict(figures)


def _verdict(figures: dict[str, Any]) -> dict[str, bool]:
    """Whether every limit that the figures name is kept; nothing where they name none."""
    kept = [
        figures[of] <= figures[limit] for limit, of in AT_MOST.items() if limit in figures and figures[of] is not None
    ]
    kept += [figures[of] >= figures[limit] for limit, of in AT_LEAST.items() if limit in figures]
    return {"holds": all(kept)} if kept else {}


def _benign(model: FlatModel, density: float | None) -> BenignClients:
    """Honest clients with records of their own, as a federation has them."""
    records = CLIENTS * 4 * BATCH
    made = _samples(model, records, density, 1)
    scale = 1.0 if density is not None else 255.0
    data = Dataset("made up", (made.x * scale).to(torch.uint8), made.y, model.classes, scale=(scale,))
    shards = torch.arange(records).view(CLIENTS, -1).unbind()
    return BenignClients(data, shards, model, Gradient(), BATCH, seed=0)


def _samples(model: FlatModel, count: int, density: float | None, seed: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, *model.input_shape, generator=generator)
    return Samples(
        x if density is None else (x < density).float(),
        torch.randint(model.classes, (count,), generator=generator),
    )


def one_at_a_time(view: AttackerView, count: int) -> list[int]:
    """Steps I and II as they are usually written: one pass per sample, and candidates tried on full-length vectors."""
    model = view.gradients.model

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        model.point_at(view.parameters)
        model.module.eval()
        loss = torch.nn.functional.cross_entropy(model.module(x), y)
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, model.parameters)])

    attack = torch.zeros(model.d)
    for i in range(len(view.targets)):
        attack += gradient(view.targets.x[i : i + 1], view.wrong_labels[i : i + 1]) / len(view.targets)
    masks = [gradient(view.mask.x[i : i + 1], view.mask.y[i : i + 1]) for i in range(len(view.mask))]
    units = view.peers / view.peers.norm(dim=1, keepdim=True)
    cosines = units @ units.T
    bound = math.acos(float(cosines[~torch.eye(len(units), dtype=torch.bool)].min()))
    chosen: list[int] = []
    total = torch.zeros(model.d)
    while len(chosen) < count:
        reached = {}
        for k, mask in enumerate(masks):
            if k not in chosen:
                update = attack + (total + mask) / (len(chosen) + 1)
                reached[k] = math.acos(max(-1.0, min(1.0, float((units @ update).min() / update.norm()))))
        within = {k: angle for k, angle in reached.items() if angle <= bound}
        best = max(within, key=within.__getitem__) if within else min(reached, key=reached.__getitem__)
        chosen.append(best)
        total += masks[best]
    return chosen
