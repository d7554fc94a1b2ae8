"""What a live federation leaked: the hostile node's observations and the server's rounds, as the store writes a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import nn

from scapegoat.attacks import Samples
from scapegoat.errors import RunError
from scapegoat.experiments import summary as summaries
from scapegoat.experiments.store import ROUNDS, TARGETS
from scapegoat.integrations.flower.hostile import read_lines, read_model
from scapegoat.integrations.flower.modules import ReceivedModel
from scapegoat.integrations.flower.records import NDArray
from scapegoat.membership import metrics

# The note of a round whose strategy did not say whom it kept.
KEPT_UNKNOWN = "kept_unknown"


@dataclass(frozen=True)
class Truth:
    """What only the auditor knows: whose membership was asked for, and the answers; all aligned with `targets`.

    `record` are row numbers in the data, `owner` the clients that hold the members. `train` and `test` give the
    accuracies of the final model; without `train`, the members among the targets do.
    """

    targets: Samples
    members: NDArray
    record: NDArray
    wrong_labels: NDArray
    owner: Sequence[int | None]
    model: Callable[[], nn.Module]
    test: Samples | None = None
    train: Samples | None = None


@dataclass
class LiveRound:
    """One round as the store writes it; the lists are aligned with `clients`."""

    round: int
    loss: float | None = None
    test_accuracy: float | None = None
    attack_accuracy: float | None = None
    attack_precision: float | None = None
    attack_recall: float | None = None
    attack_auc: float | None = None
    clients: list[int] = field(default_factory=list)
    malicious: list[bool] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    rejected: list[bool] = field(default_factory=list)
    mean_angle: list[float] = field(default_factory=list)
    norm: list[float] = field(default_factory=list)
    attack_notes: dict[str, float] = field(default_factory=dict)
    masks: list[int] = field(default_factory=list)
    defense_notes: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for tables."""
        return asdict(self)


@dataclass(frozen=True)
class LiveRun:
    """A finished audit of one live federation: what the store keeps of it, and where its logs are."""

    spec: dict[str, Any]
    summary: dict[str, Any]
    rounds: pa.Table
    targets: pa.Table
    directory: Path


def spec_hash(spec: Mapping[str, Any]) -> str:
    """The run's name: SHA-256 of its canonical JSON."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def assemble(
    directory: Path,
    spec: dict[str, Any],
    truth: Truth,
    *,
    clients: Mapping[int, int],
    hostile: set[int],
    names: Mapping[str, Any],
    seconds: float,
) -> LiveRun:
    """Everything that was written down during the run, as tables and a summary.

    `clients` maps Flower's node ids to client numbers; nodes that are not in it are numbered after those.
    """
    observations = sorted(directory.glob("**/observations*.jsonl"))
    seen = {path: read_lines(path) for path in observations}
    scores = {line["after"]: line["scores"] for lines in seen.values() for line in lines if line["after"] >= 1}
    if not scores:
        raise RunError(f"the hostile node was never shown a trained model; its log is in {directory / 'logs'}")
    after = sorted(scores)
    margins = np.array([scores[number] for number in after], dtype=np.float32)
    member = truth.members.astype(bool)
    served = {line["round"]: line for line in read_lines(directory / "rounds.jsonl")}
    sent = {line["server_round"]: line for lines in seen.values() for line in lines if line["message"] == "train"}
    numbers = dict(clients)
    records = []
    for number in range(1, max([*served, *after]) + 1):
        record = LiveRound(round=number - 1)
        if number in scores:
            _score(record, np.asarray(scores[number], dtype=np.float32), member)
        if number in served:
            _rows(record, served[number], numbers, hostile)
        record.attack_notes = dict(sent.get(number, {}).get("notes", {}))
        record.masks = list(sent.get(number, {}).get("masks", []))
        records.append(record)
    newest = max(seen, key=lambda path: max((line["after"] for line in seen[path]), default=0))
    test, train = _accuracies(newest.with_suffix(".safetensors"), truth)
    records[-1].test_accuracy = test
    membership = summaries.membership_summary(margins, member)
    membership["best_round"] = after[membership["best_round"]] - 1
    summary = {
        "spec_hash": spec_hash(spec),
        **names,
        "rounds": len(records),
        "seconds": seconds,
        "test_accuracy": test,
        "train_accuracy": train,
        "membership": membership,
        "aggregation": _aggregation(records),
        "live": {
            "observed_rounds": len(after),
            "skipped_rounds": sum(line["skipped"] is not None for line in served.values()),
            "failed_replies": sum(len(line["failed"]) for line in served.values()),
            "silent_replies": sum(len(line["silent"]) for line in served.values()),
            "set_aside_replies": sum(len(line["set_aside"]) for line in served.values()),
            # The attack knew too few peers to hide among, and sent no poison.
            "unbounded_rounds": sum("unbounded" in record.attack_notes for record in records),
        },
        "versions": summaries.versions() | {"flwr": metadata.version("flwr")},
    }
    rounds = summaries.rounds_table(records)  # type: ignore[arg-type]
    return LiveRun(spec, summary, rounds.cast(ROUNDS), _targets(truth, margins, member), directory)


def _aggregation(records: Sequence[LiveRound]) -> dict[str, Any]:
    """The simulator's figures; those about whom the rule kept are None where no round tells."""
    told = [record for record in records if KEPT_UNKNOWN not in record.defense_notes]
    everything, known = (summaries.aggregation_summary(rounds) for rounds in (records, told))  # type: ignore[arg-type]
    rates = {name: known[name] if known["malicious_rounds"] else None for name in known if name.endswith("_rate")}
    return {**everything, **rates}


def _score(record: LiveRound, margin: NDArray, member: NDArray) -> None:
    called = margin > 0
    found = int((called & member).sum())
    record.attack_accuracy = float((called == member).mean())
    record.attack_precision = found / max(int(called.sum()), 1)
    record.attack_recall = found / max(int(member.sum()), 1)
    record.attack_auc = metrics.auc_value(margin, member)


def _rows(record: LiveRound, line: dict[str, Any], numbers: dict[int, int], hostile: set[int]) -> None:
    def client(node: int) -> int:
        return numbers.setdefault(node, max(numbers.values(), default=-1) + 1)

    aside = [int(node) for node in line["set_aside"] if int(node) not in line["nodes"]]
    record.clients = [client(node) for node in (*line["nodes"], *aside)]
    record.malicious = [number in hostile for number in record.clients]
    # A strategy that is not ours does not say whom it kept. Tables hold yes or no: there it is yes, and the notes say
    # that nobody knows.
    kept = line["kept"] if line["kept"] is not None else [True] * len(line["nodes"])
    record.kept = [*kept, *[False] * len(aside)]
    record.rejected = [False] * len(line["nodes"]) + [True] * len(aside)
    record.mean_angle = [*line["mean_angle"], *[0.0] * len(aside)]
    record.norm = [*line["norm"], *[0.0] * len(aside)]
    # What the hostile node reports about itself is no loss of the federation's.
    losses = [loss for node, loss in line["loss"].items() if client(int(node)) not in hostile]
    record.loss = float(np.mean(losses)) if losses else None
    record.defense_notes = dict(line["notes"]) | ({KEPT_UNKNOWN: 1.0} if line["kept"] is None else {})


def _accuracies(path: Path, truth: Truth) -> tuple[float | None, float]:
    """Test and training accuracy of the newest model that the attacker was given."""
    given = ReceivedModel(truth.model, read_model(path), truth.targets.x)

    def accuracy(samples: Samples) -> float:
        predicted = given.model.logits(given.parameters, samples.x).argmax(1)
        return float((predicted == samples.y).float().mean())

    members = np.flatnonzero(truth.members)
    train = truth.train if truth.train is not None else Samples(truth.targets.x[members], truth.targets.y[members])
    return (None if truth.test is None else accuracy(truth.test)), accuracy(train)


def _targets(truth: Truth, margins: NDArray, member: NDArray) -> pa.Table:
    late = summaries.last_half(margins)
    best = summaries.best_round(margins, member)
    return pa.table(
        {
            "target": np.arange(len(member)),
            "record": truth.record,
            "label": truth.targets.y.numpy(),
            "wrong_label": truth.wrong_labels,
            "member": member,
            "client": list(truth.owner),
            "score_final": margins[-1],
            "score_mean": late.mean(0),
            "called_final": margins[-1] > 0,
            "called_best": margins[best] > 0,
            "called_rate": (late > 0).mean(0),
        },
        schema=TARGETS,
    )
