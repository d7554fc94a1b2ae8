"""Rules that remember sketches: a round beside that with whole vectors, and what 100,000 remembered clients take."""

from __future__ import annotations

from typing import Any

import psutil
import torch
from torch import Tensor

from benchmarks.memory import trim_heap
from benchmarks.timing import interleaved, log, with_threads
from scapegoat.aggregation import AggregationContext, Rule, get
from scapegoat.combining.memory import memory_of
from scapegoat.data.formats.safe_io import human

RULES = ("memory_atm", "reputation_atm")
WIDTH, CLIENTS = 4096, 50
SLOWER, LARGEST = 1.2, 2e9
"""Times that a round may take of one with whole vectors; bytes that the memory may take."""


def run(quick: bool = False, threads: int = 1) -> dict[str, Any]:
    """Of each rule: seconds of a round with whole vectors, sketched, and sketched with very many clients remembered."""
    d, seen = (300_000, 2_000) if quick else (3_200_000, 100_000)
    with with_threads(threads):
        updates = torch.randn(CLIENTS, d, generator=torch.Generator().manual_seed(0))
        return {
            "updates": CLIENTS,
            "parameters": d,
            "clients_seen": seen,
            "width": WIDTH,
            "rules": {name: _case(name, updates, seen, repeats=3 if quick else 5) for name in RULES},
        }


def _case(name: str, updates: Tensor, seen: int, repeats: int) -> dict[str, Any]:
    log.info("%s, %d clients seen", name, seen)
    whole: dict[str, Tensor] = {}
    short: dict[str, Tensor] = {}
    full: dict[str, Tensor] = {}
    trim_heap()  # what the case before left would hide what this one takes
    before = psutil.Process().memory_info().rss
    many = get(name, sketch=WIDTH, remember=seen)
    _fill(full, many, updates, seen)
    taken = psutil.Process().memory_info().rss - before
    seconds = interleaved(
        {
            "whole": lambda: get(name)(updates, _context(whole)),
            "sketched": lambda: get(name, sketch=WIDTH)(updates, _context(short)),
            "full": lambda: many(updates, _context(full)),
        },
        repeats,
    )
    return {
        "whole_seconds": seconds["whole"],
        "sketched_times_whole": seconds["sketched"] / seconds["whole"],
        "many_clients_times_whole": seconds["full"] / seconds["whole"],
        "bound": SLOWER,
        "memory_of_all_clients": human(sum(tensor.nbytes for tensor in full.values())),
        "process_grew_by": human(taken),
        "bound_of_memory": human(LARGEST),
        "holds": max(seconds["sketched"], seconds["full"]) <= SLOWER * seconds["whole"] and taken <= LARGEST,
    }


def _context(state: dict[str, Tensor]) -> AggregationContext:
    return AggregationContext(
        tuple(range(CLIENTS)), (1,) * CLIENTS, state=state, generator=torch.Generator().manual_seed(1)
    )


def _fill(state: dict[str, Tensor], rule: Rule, updates: Tensor, clients: int) -> None:
    """One round, and then what it left of a client again and again, under other names, 1,000 per round."""
    rule(updates, _context(state))
    kinds = {key.partition("/")[0] for key in state if "/" in key} - {"client", "seen"}
    for first in range(CLIENTS, clients, 1000):
        memory = memory_of(_context(state), clients, WIDTH, updates.shape[1])
        ids = range(first, min(clients, first + 1000))
        for client in ids:
            for kind in kinds:
                known = memory.get(kind, 0, None)
                assert known is not None
                memory.put(kind, client, known)
        memory.close_round(ids)
