"""What a live federation leaked: the hostile node's observations and the server's rounds, as the store writes a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import nn

from scapegoat.attacks import Samples
from scapegoat.errors import RunError
from scapegoat.experiments import summary as summaries
from scapegoat.experiments.store import ROUNDS
from scapegoat.federation import RoundRecord
from scapegoat.federation.record import Truth
from scapegoat.integrations.shared.audit_inputs import AuditMaterial
from scapegoat.integrations.shared.hostile import draw_wrong_labels, read_lines, read_model
from scapegoat.integrations.shared.received import ReceivedModel
from scapegoat.integrations.shared.rounds import Node
from scapegoat.membership.assessment import Scored, blind, observed_scores
from scapegoat.membership.metrics import auc_value
from scapegoat.modelling.task import CLASSES
from scapegoat.tasks import TaskSpec

# The note of a round whose strategy did not say whom it kept.
KEPT_UNKNOWN = "kept_unknown"


@dataclass(frozen=True)
class Secrets:
    """What only the auditor has: the targets, what is true of each (`told`), and the model's architecture.

    `train` and `test` give the accuracies of the final model; without `train`, the members among the targets do.
    `coins` says that a fair coin of its own made each target a member or not: without it no epsilon can be stated.
    """

    targets: Samples
    told: Truth
    model: Callable[[], nn.Module]
    test: Samples | None = None
    train: Samples | None = None
    task: TaskSpec = CLASSES
    coins: bool = False


@dataclass(frozen=True)
class LiveRun:
    """A finished audit of one live federation: what the store keeps of it, and where its logs are."""

    spec: dict[str, Any]
    summary: dict[str, Any]
    rounds: pa.Table
    targets: pa.Table
    directory: Path


def secrets_of(material: AuditMaterial, seed: int) -> Secrets:
    """What the owner of an app or a job told the auditor; wrong labels are those that the hostile participant drew."""
    told = Truth(
        record=np.arange(len(material.targets)),
        label=material.targets.y.numpy(),
        wrong_label=draw_wrong_labels(material.targets, material.mask, seed).numpy(),
        member=material.members.bool().numpy(),
        client=[None] * len(material.targets),
    )
    return Secrets(targets=material.targets, told=told, model=material.model, test=material.test)


def names_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What the summary of such a run calls its parts."""
    return {**{part: spec[part]["name"] for part in ("attack", "defense", "data", "model")}, "seed": spec["seed"]}


def spec_hash(spec: Mapping[str, Any]) -> str:
    """The run's name: SHA-256 of its canonical JSON."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def assemble(
    directory: Path,
    spec: dict[str, Any],
    secrets: Secrets,
    *,
    clients: Mapping[Any, int],
    hostile: set[int],
    names: Mapping[str, Any],
    seconds: float,
    framework: str,
) -> LiveRun:
    """Everything that was written down during the run, as tables and a summary.

    `clients` maps the framework's ids of nodes to client numbers; nodes that are not in it are numbered after those.
    `framework` is the package whose version is noted.
    """
    observations = sorted(directory.glob("**/observations*.jsonl"))
    seen = {path: read_lines(path) for path in observations}
    scores = {line["after"]: line["scores"] for lines in seen.values() for line in lines if line["after"] >= 1}
    if not scores:
        raise RunError(f"the hostile node was never shown a trained model; its log is in {directory / 'logs'}")
    after = sorted(scores)
    margins = np.array([scores[number] for number in after], dtype=np.float32)
    member = secrets.told.member
    served = {line["round"]: line for line in read_lines(directory / "rounds.jsonl")}
    sent = {line["server_round"]: line for lines in seen.values() for line in lines if line["message"] == "train"}
    numbers = dict(clients)
    records = []
    for number in range(1, max([*served, *after]) + 1):
        record = RoundRecord(round=number - 1)
        if number in scores:
            record.score(np.asarray(scores[number], dtype=np.float32), member)
        if number in served:
            _rows(record, served[number], numbers, hostile)
        record.attack_notes = dict(sent.get(number, {}).get("notes", {}))
        record.masks = list(sent.get(number, {}).get("masks", []))
        records.append(record)
    newest = max(seen, key=lambda path: max((line["after"] for line in seen[path]), default=0))
    trained_on = secrets.train or _members(secrets)
    test, train = _accuracies(newest.with_suffix(".safetensors"), secrets, trained_on)
    records[-1].test_accuracy = test
    membership = summaries.membership_summary(margins, member)
    membership["best_round"] = after[membership["best_round"]] - 1
    # What tells members apart before this training has let nothing out.
    for line in [line for lines in seen.values() for line in lines if line["after"] == 0 and "scores" in line][:1]:
        membership["initial_auc"] = auc_value(np.asarray(line["scores"], dtype=np.float32), member)
    scored = Scored(member=member, coins=secrets.coins, scores=observed_scores(margins))
    summary = {
        "spec_hash": spec_hash(spec),
        **names,
        "rounds": len(records),
        "seconds": seconds,
        "test_accuracy": test,
        **({} if secrets.test is None else {"test_majority": secrets.task.baseline(secrets.test.y)}),
        "train_accuracy": train,
        "train_majority": secrets.task.baseline(trained_on.y),
        **({} if secrets.train is None else {"training_records": len(secrets.train)}),
        "membership": membership | scored.figures(),
        "validity": scored.validity(blind(secrets.targets.x.numpy(), secrets.told.label, member)),
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
        "versions": summaries.versions() | {framework: metadata.version(framework)},
    }
    rounds = summaries.rounds_table(records)
    table = summaries.targets_table(secrets.told, margins, scored.scores)
    return LiveRun(spec, summary, rounds.cast(ROUNDS), table, directory)


def _aggregation(records: Sequence[RoundRecord]) -> dict[str, Any]:
    """The simulator's figures; those about whom the rule kept are None where no round tells."""
    told = [record for record in records if KEPT_UNKNOWN not in record.defense_notes]
    everything, known = (summaries.aggregation_summary(rounds) for rounds in (records, told))
    rates = {name: known[name] if known["malicious_rounds"] else None for name in known if name.endswith("_rate")}
    clients = {name: known[name] if told else None for name in ("honest_longest_exclusion", "honest_clients")}
    return {**everything, **rates, **clients}


def _rows(record: RoundRecord, line: dict[str, Any], numbers: dict[Node, int], hostile: set[int]) -> None:
    def node(text: str) -> Node:
        # Keys of JSON are text; what is not known by it is one of Flower's numbers.
        return text if text in numbers or not text.isdecimal() else int(text)

    def client(node: Node) -> int:
        return numbers.setdefault(node, max(numbers.values(), default=-1) + 1)

    aside = [node(text) for text in line["set_aside"] if node(text) not in line["nodes"]]
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
    losses = [loss for text, loss in line["loss"].items() if client(node(text)) not in hostile]
    record.loss = float(np.mean(losses)) if losses else None
    record.defense_notes = dict(line["notes"]) | ({KEPT_UNKNOWN: 1.0} if line["kept"] is None else {})


def _members(secrets: Secrets) -> Samples:
    rows = np.flatnonzero(secrets.told.member)
    return Samples(secrets.targets.x[rows], secrets.targets.y[rows])


def _accuracies(path: Path, secrets: Secrets, trained_on: Samples) -> tuple[float | None, float]:
    """Test and training accuracy of the newest model that the attacker was given."""
    given = ReceivedModel(secrets.model, read_model(path), secrets.targets.x, secrets.task)

    def accuracy(samples: Samples) -> float:
        return secrets.task.score(given.model.logits(given.parameters, samples.x), samples.y)

    return (None if secrets.test is None else accuracy(secrets.test)), accuracy(trained_on)
