"""Every aggregation rule beside the plain mean, the paper's loops, torch's own operations and Flower's functions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.aggregation_others import others
from benchmarks.memory import extra_memory
from benchmarks.timing import interleaved, log, with_threads
from scapegoat.aggregation import AggregationContext, Score, get, registry
from scapegoat.errors import InputError
from scapegoat.experiments.routes import processor

SIZES = tuple(itertools.product((10, 50, 200), (300_000, 3_200_000)))
QUICK = ((10, 30_000), (50, 30_000))
LONG = 4.0
"""Seconds after which a function is measured once only, without a repeat."""

CLASSES, HIDDEN = 10, 32

SKETCH = 4096
"""Numbers per client that rules with a memory keep in their sketched form."""

# What is asked of the largest model, two threads: name, n, what is divided by what, and the bound.
WANTED = (
    ("atm at most 4 x mean", 50, ("rules", "atm", "times_mean"), "<=", 4.0),
    ("multi_krum at most 1.5 x atm", 50, ("rules", "multi_krum", "times_atm"), "<=", 1.5),
    ("atm at least 30 x faster than the paper's loop", 50, ("against", "atm", "paper_loop", "speedup"), ">=", 30.0),
    ("median at least 2 x faster than torch.median", 10, ("against", "median", "torch", "speedup"), ">=", 2.0),
    ("trimmed_mean at least 2 x faster than a sort", 10, ("against", "trimmed_mean", "torch", "speedup"), ">=", 2.0),
    ("median never slower than torch.median", 50, ("against", "median", "torch", "speedup"), ">=", 1.0),
    ("trimmed_mean never slower than a sort", 50, ("against", "trimmed_mean", "torch", "speedup"), ">=", 1.0),
    ("sketched memory_atm at most 1.2 x whole", 50, ("rules", "memory_atm", "sketched", "times_whole"), "<=", 1.2),
    (
        "sketched reputation_atm at most 1.2 x whole",
        50,
        ("rules", "reputation_atm", "sketched", "times_whole"),
        "<=",
        1.2,
    ),
    ("median never slower than torch.median", 200, ("against", "median", "torch", "speedup"), ">=", 1.0),
    ("trimmed_mean never slower than a sort", 200, ("against", "trimmed_mean", "torch", "speedup"), ">=", 1.0),
)
MEMORY_SHARE = 0.25


def run(
    quick: bool = False,
    threads: int = 2,
    sizes: tuple[tuple[int, int], ...] | None = None,
    rules: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Seconds and ratios of every rule, or of those named and `atm`, for every size, measured in this one run."""
    names = registry.names() if rules is None else sorted({"atm", *rules})
    if unknown := sorted({*names} - {*registry.names()}):
        raise InputError(f"--rules: {unknown[0]!r} is no rule (known: {', '.join(registry.names())})")
    with with_threads(threads):
        cases = [_case(n, d, names, repeats=3 if quick else 5) for n, d in sizes or (QUICK if quick else SIZES)]
        return {"processor": processor(), "threads": threads, "cases": cases, "wanted": _wanted(cases)}


def _case(n: int, d: int, names: list[str], repeats: int) -> dict[str, Any]:
    log.info("%d updates of %d parameters", n, d)
    updates = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    rules = {name: _call(name, updates) for name in names}
    seconds = _measured({"mean": lambda: updates.mean(0), **rules}, repeats)
    mean, atm = seconds.pop("mean"), seconds["atm"]
    figures: dict[str, dict[str, Any]] = {
        name: {
            "seconds": value,
            "times_mean": value / mean,
            "times_atm": value / atm,
            "extra_memory": extra_memory(rules[name], updates.nbytes),
        }
        for name, value in seconds.items()
    }
    for name in (name for name, rule in registry.classes() if name in rules and "sketch" in rule.model_fields):
        pair = _measured({"whole": rules[name], "sketched": _call(name, updates, sketch=SKETCH)}, repeats)
        sketched = {"seconds": pair["sketched"], "times_whole": pair["sketched"] / pair["whole"]}
        figures[name]["sketched"] = sketched
    against, left_out = _against(updates, rules, repeats)
    return {"n": n, "d": d, "mean_seconds": mean, "rules": figures, "against": against, "left_out": left_out}


def _measured(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Seconds of each: medians of interleaved repeats, or the one first call of those that take long."""
    first = {name: _once(function) for name, function in functions.items()}
    short = {name: function for name, function in functions.items() if first[name] < LONG}
    return {**first, **interleaved(short, repeats, warmup=0)}


def _once(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _call(name: str, updates: Tensor, **options: Any) -> Callable[[], Any]:
    """The rule on these updates, with a server whose own work (scores, root update, probe) costs next to nothing."""
    n, d = updates.shape
    rule, output = get(name, **options), CLASSES * HIDDEN + CLASSES
    noise = torch.rand(16, HIDDEN)

    def probe(update: Tensor, seed: int) -> Tensor:
        return (noise @ update[-output:-CLASSES].view(CLASSES, HIDDEN).T + update[-CLASSES:]).softmax(1)

    context = AggregationContext(
        client_ids=tuple(range(n)),
        sample_counts=(1,) * n,
        generator=torch.Generator().manual_seed(0),
        score=lambda update: Score(float(update[:1000].sum()), 0.5),
        root_update=lambda: updates[0],
        output_probe=probe,
        layout=(("body", (d - output, 1)), ("out.weight", (CLASSES, HIDDEN)), ("out.bias", (CLASSES,))),
    )
    return lambda: rule(updates, context)


def _against(updates: Tensor, rules: dict[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, Any], list[str]]:
    """Each rule that others have too, beside theirs: in turn, so that a busy moment hits both."""
    out: dict[str, Any] = {}
    left_out: list[str] = []
    for other in others(updates):
        if other.rule not in rules:
            continue
        if other.function is None:
            left_out.append(f"{other.kind} {other.rule}: {other.why_not}")
            continue
        seconds = _measured({"other": other.function, "own": rules[other.rule]}, repeats)
        theirs = seconds["other"] * other.times
        figures = {"seconds": theirs, "own_seconds": seconds["own"], "speedup": theirs / seconds["own"]}
        if other.times != 1:
            figures["extrapolated_times"] = other.times
        out.setdefault(other.rule, {})[other.kind] = figures
    return out, left_out


def _wanted(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The speed that is asked for, with what was measured; nothing for sizes that were not run."""
    out = []
    for what, n, path, sign, bound in WANTED:
        for case in cases:
            if (case["n"], case["d"]) == (n, 3_200_000):
                value: Any = case
                for key in path:
                    value = value.get(key, {})
                if isinstance(value, float):
                    holds = value <= bound if sign == "<=" else value >= bound
                    out.append({"what": what, "n": n, "measured": value, "bound": bound, "holds": holds})
    for case in cases:
        shares = {name: f["extra_memory"] for name, f in case["rules"].items() if f["extra_memory"] is not None}
        if case["d"] == 3_200_000 and shares:
            worst = max(shares, key=lambda name: shares[name])
            out.append(
                {
                    "what": f"extra memory at most a quarter of the updates (worst: {worst})",
                    "n": case["n"],
                    "measured": shares[worst],
                    "bound": MEMORY_SHARE,
                    "holds": shares[worst] <= MEMORY_SHARE,
                }
            )
    return out
