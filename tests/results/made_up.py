"""Result files that nobody computed: runs whose figures a test chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from results.claims import Finding, findings
from results.files import Collection
from scapegoat.experiments import parse
from scapegoat.membership.metrics import rate

ATTACKS = ("passive", "gradient_ascent", "agrevader", "adaptive", "fedpoisonmia")
DEFENSES = ("fedavg", "median", "trimmed_mean", "atm")

Accuracy = Callable[[dict[str, Any]], float]


def collection(specs: list[dict[str, Any]], accuracy: Accuracy, test: Accuracy = lambda s: 0.6) -> Collection:
    """Runs that came to these accuracies of 300 targets and 2,000 test records."""
    runs = {}
    for plain in specs:
        spec = parse(plain)
        figure = rate(round(300 * accuracy(plain)), 300)
        membership = {"accuracy_best": figure.value, "accuracy_best_ci": figure.ci}
        tested = rate(round(2000 * test(plain)), 2000)
        summary = {"membership": membership, "rounds": 150, "seconds": 1.0}
        summary |= {"test_accuracy": tested.value, "test_accuracy_ci": tested.ci}
        runs[spec.hash] = {"run": spec.hash, "date": "2026-01-01", "spec": spec.canonical(), "summary": summary}
    return Collection({"made-up.parquet": len(runs)}, runs, (), ())


def grid(**federation: Any) -> list[dict[str, Any]]:
    return [
        {"attack": {"name": a}, "defense": {"name": d}, "federation": {"rounds": 150, **federation}}
        for a in ATTACKS
        for d in DEFENSES
    ]


def finding(collected: Collection, words: str) -> Finding:
    (found,) = [f for f in findings(collected) if words in f.claim]
    return found
