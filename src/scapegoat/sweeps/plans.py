"""Attacks against plans: a rule and protections of training together, for equal and unequal clients."""

from typing import Any

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, Point, Sweep, Table


def _plan(key: str, label: str, defense: str, *protect: dict[str, Any]) -> Point:
    return Point(key, label, {"defense.name": defense, "federation.protect": list(protect)})


def _decay(rate: float) -> dict[str, Any]:
    return {"name": "weight_decay", "rate": rate}


def _private(noise: float) -> dict[str, Any]:
    return {"name": "dp_sgd", "clip": 1.0, "noise": noise}


PLANS = Axis(
    "plan",
    "Plan",
    (
        _plan("fedavg", "FedAvg", "fedavg"),
        _plan("reputation", "reputation_atm", "reputation_atm"),
        _plan("decay-0.002", "FedAvg, decay 0.002", "fedavg", _decay(0.002)),
        _plan("decay-0.005", "FedAvg, decay 0.005", "fedavg", _decay(0.005)),
        _plan("decay-0.01", "FedAvg, decay 0.01", "fedavg", _decay(0.01)),
        _plan("decay-0.02", "FedAvg, decay 0.02", "fedavg", _decay(0.02)),
        _plan("reputation-decay-0.005", "reputation_atm, decay 0.005", "reputation_atm", _decay(0.005)),
        _plan("reputation-decay-0.01", "reputation_atm, decay 0.01", "reputation_atm", _decay(0.01)),
        _plan("dp_sgd-0.1", "FedAvg, dp_sgd 1 / 0.1", "fedavg", _private(0.1)),
        _plan("dp_sgd-0.2", "FedAvg, dp_sgd 1 / 0.2", "fedavg", _private(0.2)),
        _plan("loss_floor", "FedAvg, loss_floor 0.5", "fedavg", {"name": "loss_floor", "floor": 0.5}),
        _plan("label_smoothing", "FedAvg, label_smoothing 0.1", "fedavg", {"name": "label_smoothing", "share": 0.1}),
        _plan("mixup", "FedAvg, mixup 0.2", "fedavg", {"name": "mixup", "alpha": 0.2}),
    ),
)

SWEEP = Sweep(
    name="plans",
    title="Attacks against plans",
    about="A rule with protections of training, equal and unequal clients. Every round of a run is a point of early "
    "stopping: what a protection is worth is told beside that curve.",
    axes=(
        Axis(
            "attack",
            "Attack",
            (
                *paper.attacks().points,
                Point("blend", "Blend", {"attack.name": "blend"}),
            ),
        ),
        PLANS,
        Axis(
            "partition",
            "Partition",
            (
                Point("iid", "IID", {"federation.partition": {"name": "iid"}}),
                Point("bias-0.5", "Label bias 0.5", {"federation.partition": {"name": "label_bias", "beta": 0.5}}),
                Point("bias-0.9", "Label bias 0.9", {"federation.partition": {"name": "label_bias", "beta": 0.9}}),
            ),
        ),
    ),
    layout=Table(rows=("data", "plan", "attack"), columns=("partition",)),
    data=("location30", "hospital"),
    base={
        **paper.SETTING,
        "federation.rounds": 200,
        "attack.targets": 600,
        "evaluation": {"design": "coin", "every": 5},
    },
    metrics=("auc_worst", "auc", "tpr_at_fpr_01", "test_accuracy"),
    fit_rules=True,
)
