"""Audits made up without training anything."""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa

from scapegoat.auditing import Audit
from scapegoat.auditing.policy import AGAINST as ATTACKS
from scapegoat.experiments import parse
from scapegoat.experiments.executors import Failure
from scapegoat.experiments.run import Result

SUMMARY = {
    "test_accuracy": 0.6,
    "membership": {
        "scores": {
            "final_margin": {
                "auc": 0.6,
                "auc_ci": [0.57, 0.63],
                "tpr_at_fpr_01": 0.02,
                "tpr_at_fpr_01_ci": [0.0, 0.05],
            },
            "trajectory": {"auc": 0.65, "auc_ci": [0.6, 0.7], "tpr_at_fpr_01": 0.05, "tpr_at_fpr_01_ci": [0.01, 0.1]},
        },
        "worst_score": {"name": "trajectory", "auc": 0.65, "auc_ci": [0.6, 0.7]},
        "epsilon_lower": 1.2,
        "epsilon_ceiling": 5.0,
        "epsilon_reachable": 4.0,
    },
    "validity": {"valid": True, "reasons": []},
}


def spec(attack: str, defense: Any, seed: int = 0):
    return parse({"seed": seed, "attack": {"name": attack}, "defense": defense})


def result(attack: str, defense: Any, seed: int = 0, **changes: Any) -> Result:
    """A run whose summary is `SUMMARY` but for `changes`, keyed by dotted paths with `__` for the dot."""
    summary: dict[str, Any] = {"attack": attack, "seed": seed, **copy.deepcopy(SUMMARY)}
    for path, value in changes.items():
        node = summary
        *parents, last = path.split("__")
        for parent in parents:
            node = node[parent]
        node[last] = value
    return Result(spec(attack, defense, seed), summary, pa.table({}), pa.table({}))


def audit(*, seeds=(0,), defenses=("fedavg", "atm"), changed: dict | None = None, without=(), failed=()) -> Audit:
    """An audit of all attacks; `changed` {(attack, defense, seed): changes}, keys of runs to leave out or to fail."""
    keys = [(a, d, s) for s in seeds for d in defenses for a in ATTACKS]
    results = [
        result(*key, **dict(next((v for k, v in (changed or {}).items() if k == key), {})))
        for key in keys
        if key not in (*without, *failed)
    ]
    return Audit(tuple(results), tuple(Failure("f" * 64, spec(*key), "it ran out of memory") for key in failed))
