"""Audits of models that are no classifiers, on generated records: the table of docs/tasks.md.

    python examples/tasks.py [SEEDS]

Each task is watched, attacked by FedPoisonMIA, and watched again in a federation that was given none of the targets,
where nothing can leak.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import scapegoat as sg
from scapegoat.experiments import parse
from scapegoat.experiments.staging import staged
from scapegoat.federation.simulation import Simulation
from scapegoat.membership.metrics import auc_value

RECORDS, FEATURES, LABELS = 3000, 60, 8


def generated(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Linear signals and noise, of which a model that trains for long memorises the noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(RECORDS, FEATURES)).astype(np.float32)
    signal = x @ rng.normal(size=(FEATURES, LABELS)) / FEATURES**0.5 + 0.7 * rng.normal(size=(RECORDS, LABELS))
    labels = {"binary": signal[:, 0] > 0, "multilabel": signal > 0.5, "regression": 13 * signal[:, 0] + 40}
    return x, labels[task]


def spec(folder: Path, task: str, attack: str, seed: int) -> dict[str, Any]:
    """Ten clients of which one is hostile, 900 training records, 300 targets by coins, plain averaging."""
    path = folder / f"{task}.npz"
    if not path.exists():
        x, y = generated(task)
        np.savez(path, x=x, y=y)
    return {
        "seed": seed,
        "data": {"name": f"npz:{path}", "train": 900},
        "task": task,
        "model": {"name": "mlp", "hidden": [128, 64]},
        "attack": {"name": attack, "targets": 300, "mask": 300},
        "federation": {"rounds": 150},
        "evaluation": {"design": "coin"},
    }


def unseen(asked: dict[str, Any]) -> float:
    """The AUC where the targets were taken out of every client's records."""
    cast = staged(parse(asked))
    shards = tuple(shard[~torch.isin(shard, cast.splits.targets)] for shard in cast.splits.shards)
    cast = dataclasses.replace(cast, benign=dataclasses.replace(cast.benign, shards=shards))
    simulation = Simulation(cast, evaluate_every=1000)
    while not simulation.done:
        simulation.run_round()
    return float(auc_value(simulation.margins[-1], cast.member))


def main(seeds: int) -> None:
    """Print a row per task: mean over the seeds, and their range."""
    print("task        metric          test    AUC watching        AUC FedPoisonMIA    AUC unseen")
    with tempfile.TemporaryDirectory() as folder:
        for task in ("binary", "multilabel", "regression"):
            found: dict[str, list[float]] = {"passive": [], "fedpoisonmia": [], "unseen": [], "test": []}
            for seed in range(seeds):
                for attack in ("passive", "fedpoisonmia"):
                    summary = sg.run(spec(Path(folder), task, attack, seed)).summary
                    found[attack].append(summary["membership"]["auc"])
                    if attack == "passive":
                        found["test"].append(summary["test_accuracy"])
                found["unseen"].append(unseen(spec(Path(folder), task, "passive", seed)))
            cells = [
                f"{np.mean(found[k]):.3f} ({min(found[k]):.3f}-{max(found[k]):.3f})"
                for k in ("passive", "fedpoisonmia", "unseen")
            ]
            print(f"{task:<11} {summary['metric']:<15} {np.mean(found['test']):.3f}   {'   '.join(cells)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
