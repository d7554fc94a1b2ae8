"""A run store made up without training anything: the shape and the manner of real runs, in a second."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scapegoat.membership import metrics

ATTACKS = ("passive", "gradient_ascent", "agrevader", "adaptive", "fedpoisonmia")
DEFENSES = ("fedavg", "median", "trimmed_mean", "atm", "clipped_atm", "memory_atm")

# Distance between members' and non-members' margins, and final test accuracy.
STRENGTH = {
    "fedavg": (1.1, 1.5, 2.4, 3.0, 3.2),
    "median": (1.2, 1.9, 1.7, 1.7, 1.7),
    "trimmed_mean": (1.1, 2.1, 2.2, 2.2, 2.8),
    "atm": (1.1, 2.1, 2.2, 3.1, 3.0),
    "clipped_atm": (1.1, 1.2, 1.9, 2.9, 1.3),
    "memory_atm": (1.1, 1.1, 1.15, 1.15, 1.2),
}
UTILITY = {
    "fedavg": (0.65, 0.25, 0.58, 0.53, 0.54),
    "median": (0.59, 0.43, 0.50, 0.50, 0.55),
    "trimmed_mean": (0.65, 0.34, 0.60, 0.57, 0.53),
    "atm": (0.65, 0.49, 0.60, 0.53, 0.55),
    "clipped_atm": (0.65, 0.63, 0.61, 0.54, 0.63),
    "memory_atm": (0.64, 0.63, 0.63, 0.62, 0.63),
}
# How often the rule discards the hostile row when it is among the rows; None where the rule discards nobody.
CAUGHT = {"fedavg": None, "median": None, "trimmed_mean": None, "atm": 0.35, "clipped_atm": 0.5, "memory_atm": 0.97}
CLIENTS, PICKED, TARGETS = 10, 8, 300
HOSTILE = CLIENTS - 1


def make_spec(
    attack: str, defense: str, seed: int = 0, rounds: int = 400, data: str = "hospital", **federation: Any
) -> dict[str, Any]:
    trim = {"trim": 1} if defense.endswith("atm") or defense == "trimmed_mean" else {}
    return {
        "seed": seed,
        "data": {"name": data},
        "model": {"name": "mlp", "hidden": [512, 128]},
        "federation": {
            "clients": CLIENTS,
            "malicious": 1,
            "fraction": 0.8,
            "rounds": rounds,
            "batch_size": 64,
            "partition": {"name": "iid"},
            "local": {"name": "gradient"},
            "server": {"optimizer": "adam", "lr": 0.01},
            "schedule": {"name": "sync"},
            **federation,
        },
        "attack": {"name": attack, "knowledge": "full", "targets": TARGETS, "mask": 300, "start_round": 0},
        "defense": {"name": defense, **trim},
    }


def spec_hash(spec: Mapping[str, Any]) -> str:
    text = json.dumps({"numbers": 1, **spec}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_run(
    directory: Path, spec: Mapping[str, Any], gap: float | None = None, utility: float | None = None
) -> dict[str, Any]:
    """One run as the store keeps it; returns its summary."""
    attack, defense, seed = spec["attack"]["name"], spec["defense"]["name"], spec["seed"]
    column = ATTACKS.index(attack) if attack in ATTACKS else 0
    gap = STRENGTH.get(defense, STRENGTH["fedavg"])[column] if gap is None else gap
    utility = UTILITY.get(defense, UTILITY["fedavg"])[column] if utility is None else utility
    # The targets depend on the seed alone, as in a real audit: cells of one seed share them.
    shared = np.random.default_rng(seed)
    own = np.random.default_rng([seed, column, len(defense), int(gap * 1000)])
    count, rounds = spec["attack"]["targets"], spec["federation"]["rounds"]
    member = np.arange(count) % 2 == 0
    margin = 0.8 * shared.normal(size=count) + 0.6 * own.normal(size=count) + gap * member - 0.45 * gap
    curve, best_round, best_called, rate = _by_round(margin, member, rounds, own)
    targets = _targets(margin, member, best_called, rate, shared)
    rows, kept_rate, scapegoats, hostile_rounds = _rows(defense, attack, rounds, own)
    test = np.full(rounds, np.nan)
    evaluated = [r for r in range(rounds) if r % 5 == 4 or r == rounds - 1]
    for r in evaluated:
        test[r] = utility * (1 - np.exp(-(r + 1) / 40)) + own.normal() * 0.004
    test[-1] = utility
    table = pa.table(
        {
            "round": pa.array(np.arange(rounds), pa.int32()),
            "loss": pa.array(3.4 * np.exp(-np.arange(rounds) / 30) + 0.02),
            "test_accuracy": pa.array(test, pa.float64(), from_pandas=True),
            "attack_accuracy": pa.array(curve["accuracy"]),
            "attack_precision": pa.array(curve["precision"]),
            "attack_recall": pa.array(curve["recall"]),
            "attack_auc": pa.array(curve["auc"]),
            **rows,
        }
    )
    best = metrics.calls(best_called, member)
    final = metrics.calls(margin > 0, member)
    auc, low, lower = (
        metrics.auc(margin, member),
        metrics.tpr_at_fpr(margin, member, 0.01),
        metrics.tpr_at_fpr(margin, member, 0.001),
    )
    summary = {
        "spec_hash": spec_hash(spec),
        "attack": attack,
        "defense": defense,
        "data": spec["data"]["name"],
        "model": "mlp",
        "seed": seed,
        "rounds": rounds,
        "seconds": 3.9,
        "test_accuracy": utility,
        "train_accuracy": 1.0,
        "membership": {
            "accuracy_best": best.accuracy.value,
            "accuracy_best_ci": best.accuracy.ci,
            "best_round": best_round,
            "accuracy_final": final.accuracy.value,
            "accuracy_final_ci": final.accuracy.ci,
            "precision": best.precision.value,
            "precision_ci": best.precision.ci,
            "recall": best.recall.value,
            "recall_ci": best.recall.ci,
            "auc": auc.value,
            "auc_ci": auc.ci,
            "tpr_at_fpr_01": low.value,
            "tpr_at_fpr_01_ci": low.ci,
            "tpr_at_fpr_001": lower.value,
            "tpr_at_fpr_001_ci": lower.ci,
            "advantage": final.advantage.value,
            "advantage_ci": final.advantage.ci,
            "auc_mean": min(1.0, auc.value + 0.02),
            "targets": count,
            "members": int(member.sum()),
        },
        "aggregation": {
            "malicious_kept_rate": kept_rate,
            "scapegoat_rate": scapegoats / max(hostile_rounds, 1),
            "rejected": 0,
            "malicious_rounds": hostile_rounds,
            "sums_only": defense == "fedavg",
        },
        "versions": {"scapegoat": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
    }
    write_files(directory, spec, summary, table, targets)
    return summary


def write_files(
    directory: Path, spec: Mapping[str, Any], summary: Mapping[str, Any], rounds: pa.Table, targets: pa.Table
) -> None:
    folder = directory / "runs" / spec_hash(spec)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "summary.json").write_text(json.dumps(summary))
    pq.write_table(rounds, folder / "rounds.parquet")
    pq.write_table(targets, folder / "targets.parquet")


def write_store(
    directory: Path,
    attacks: Sequence[str] = ATTACKS,
    defenses: Sequence[str] = DEFENSES,
    seeds: Sequence[int] = (0,),
    **options: Any,
) -> dict[tuple[str, str, int], dict[str, Any]]:
    """A store of attacks x defenses x seeds; the summaries by (attack, defense, seed)."""
    return {
        (attack, defense, seed): write_run(directory, make_spec(attack, defense, seed, **options))
        for attack in attacks
        for defense in defenses
        for seed in seeds
    }


def _by_round(
    margin: np.ndarray, member: np.ndarray, rounds: int, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], int, np.ndarray, np.ndarray]:
    """Calls of the paper's rule by round: members are learnt little by little, with some noise."""
    grown = 1 - np.exp(-(np.arange(rounds) + 1) / (rounds / 6))
    noise = rng.normal(size=(rounds, len(margin))) * (0.15 * (1 - np.arange(rounds) / rounds))[:, None]
    score = margin[None, :] * grown[:, None] - 1.2 * (1 - grown)[:, None] + noise
    score[-1] = margin
    called = score > 0
    hits = (called == member).mean(axis=1)
    best = int(np.argmax(hits))
    positives = np.maximum(called.sum(axis=1), 1)
    ranks = score.argsort(axis=1).argsort(axis=1) + 1
    size = int(member.sum())
    auc = (ranks[:, member].sum(axis=1) - size * (size + 1) / 2) / (size * (len(member) - size))
    curve = {
        "accuracy": hits,
        "precision": (called & member).sum(axis=1) / positives,
        "recall": (called & member).sum(axis=1) / size,
        "auc": auc,
    }
    return curve, best, called[best], called[rounds // 2 :].mean(axis=0)


def _targets(
    margin: np.ndarray, member: np.ndarray, called_best: np.ndarray, rate: np.ndarray, rng: np.random.Generator
) -> pa.Table:
    count = len(margin)
    clients = [int(i // 2 % (CLIENTS - 1)) if m else None for i, m in enumerate(member)]
    labels = rng.integers(0, 30, count)
    return pa.table(
        {
            "target": pa.array(np.arange(count), pa.int32()),
            "record": pa.array(rng.permutation(5000)[:count], pa.int64()),
            "label": pa.array(labels, pa.int32()),
            "wrong_label": pa.array((labels + 1) % 30, pa.int32()),
            "member": pa.array(member),
            "client": pa.array(clients, pa.int32()),
            "score_final": pa.array(margin.astype(np.float32)),
            "score_mean": pa.array((0.9 * margin).astype(np.float32)),
            "called_final": pa.array(margin > 0),
            "called_best": pa.array(called_best),
            "called_rate": pa.array(rate.astype(np.float32)),
        }
    )


def _rows(
    defense: str, attack: str, rounds: int, rng: np.random.Generator
) -> tuple[dict[str, pa.Array], float, int, int]:
    """Who was picked, at which angle, and whom the rule discarded."""
    clients, malicious, kept, angles = [], [], [], []
    hostile_rounds = hostile_kept = scapegoats = 0
    caught = CAUGHT.get(defense)
    habit = rng.normal(0, 0.006, CLIENTS)
    for r in range(rounds):
        picked = np.sort(rng.permutation(CLIENTS)[:PICKED])
        hostile = picked == HOSTILE
        base = 1.25 + 0.2 * (1 - np.exp(-r / 60))
        angle = base + habit[picked] + rng.normal(0, 0.025, PICKED)
        angle[hostile] = base + rng.normal(0.01 if attack != "gradient_ascent" else 0.3, 0.02)
        keep = np.ones(PICKED, dtype=bool)
        if caught is not None:
            if hostile.any() and attack != "passive" and rng.random() < caught:
                keep[hostile] = False
            else:
                keep[np.argmax(np.where(hostile, -np.inf, angle))] = False
        hostile_rounds += int(hostile.any())
        hostile_kept += int((hostile & keep).any())
        scapegoats += int((hostile & keep).any() and (~hostile & ~keep).any())
        clients.append(picked)
        malicious.append(hostile)
        kept.append(keep)
        angles.append(angle)
    offsets = pa.array(np.arange(rounds + 1) * PICKED, pa.int32())

    def lists(values: Sequence[np.ndarray], kind: pa.DataType) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(values), kind))

    norms = [np.where(m, 1.6, 1.0) * rng.lognormal(0, 0.1, PICKED) for m in malicious]
    notes = pa.array([[("angle", 1.45), ("alpha", 2.0)]] * rounds, pa.map_(pa.string(), pa.float64()))
    columns = {
        "clients": lists(clients, pa.int32()),
        "malicious": lists(malicious, pa.bool_()),
        "kept": lists(kept, pa.bool_()),
        "rejected": lists([np.zeros(PICKED, dtype=bool)] * rounds, pa.bool_()),
        "mean_angle": lists(angles, pa.float32()),
        "norm": lists(norms, pa.float32()),
        "attack_notes": notes,
        "masks": pa.array([[1, 2, 3]] * rounds, pa.list_(pa.int32())),
        "defense_notes": pa.array([[]] * rounds, pa.map_(pa.string(), pa.float64())),
    }
    return columns, hostile_kept / max(hostile_rounds, 1), scapegoats, hostile_rounds
