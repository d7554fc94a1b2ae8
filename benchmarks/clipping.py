"""What record-level DP-SGD adds: a round with it beside a plain one, and the clients' gradients alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.memory import peak_of_tensors
from benchmarks.round import CASES, simulation
from benchmarks.timing import interleaved, log, with_threads
from scapegoat import models
from scapegoat.gradients import client_gradients, clipped_gradients, private_gradients
from scapegoat.randomness import generator

CLIENTS, BATCH = 8, 64
LIMIT, MEMORY_LIMIT = 2.5, 2.0


def run(quick: bool = False, threads: int = 1) -> dict[str, Any]:
    """Time and memory of the clients' updates, private beside plain, for each model."""
    with with_threads(threads):
        return {"threads": threads} | {name: _case(name, case, 3 if quick else 9) for name, case in CASES.items()}


def passes(case: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """A round's gradients of a case: plain, clipped, and private (clipped, with noise), each on fresh batches."""
    model = models.build(models.registry.parse(case["model"]), case["shape"], case["classes"], seed=0)
    draw = torch.Generator().manual_seed(0)
    # Tabular benchmarks are sparse and binary, as the data sets that they stand for.
    density = 0.5 if len(case["shape"]) == 3 else 0.05
    records = (torch.rand(CLIENTS * BATCH, *case["shape"], generator=draw) < density).to(torch.float32)
    y = torch.randint(case["classes"], (len(records),), generator=draw)
    vector, sizes, out = model.initial(), [BATCH] * CLIENTS, torch.empty(CLIENTS, model.d)

    def fresh() -> Tensor:
        return records.clone()  # what is known of a tensor is remembered, and a round's batches are new

    def plain() -> None:
        client_gradients(model, vector, fresh(), y, sizes, out)

    def clipped() -> None:
        clipped_gradients(model, vector, fresh(), y, sizes, 1.0, out)

    def private() -> None:
        sources = [generator(0, "dp_sgd", 0, client) for client in range(CLIENTS)]
        expected = [float(BATCH)] * CLIENTS
        private_gradients(
            model, vector, fresh(), y, sizes, clip=1.0, noise=1.0, expected=expected, sources=sources, out=out
        )

    return {"plain": plain, "clipped": clipped, "private": private}


def rounds(case: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """A whole round of a case, plain and private, in federations with the same batches per client."""
    dp_sgd = {"name": "dp_sgd", "sampling": "fixed"}
    plain = simulation(case["model"], case["shape"], case["classes"])
    private = simulation(case["model"], case["shape"], case["classes"], protect=(dp_sgd,))
    return {"plain_round": plain.run_round, "private_round": private.run_round}


def memory(functions: dict[str, Callable[[], Any]], updates: int) -> float:
    """Bytes in tensors at the peak of private gradients, with the `updates` themselves, as a multiple of plain ones."""
    peaks = {name: peak_of_tensors(function) + updates for name, function in functions.items()}
    return peaks["private"] / peaks["plain"]


def _case(name: str, case: dict[str, Any], repeats: int) -> dict[str, Any]:
    log.info("clipped gradients of %s", name)
    functions = passes(case)
    seconds = interleaved(functions, repeats) | interleaved(rounds(case), repeats)
    return {
        "plain_round_seconds": seconds["plain_round"],
        "private_round_seconds": seconds["private_round"],
        "round_ratio": seconds["private_round"] / seconds["plain_round"],
        "limit": LIMIT,
        # The clients' gradients alone. A normal number per parameter and client costs as much whatever the batch.
        "gradients": {
            "plain_seconds": seconds["plain"],
            "ratio_clipped": seconds["clipped"] / seconds["plain"],
            "ratio_with_noise": seconds["private"] / seconds["plain"],
        },
        "memory_ratio": memory(functions, updates_of(case)),
        "memory_limit": MEMORY_LIMIT,
    }


def updates_of(case: dict[str, Any]) -> int:
    """Bytes of all clients' updates."""
    return 4 * CLIENTS * models.build(models.registry.parse(case["model"]), case["shape"], case["classes"], seed=0).d
