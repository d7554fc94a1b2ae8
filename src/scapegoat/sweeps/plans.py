"""Attacks against plans: a rule and protections of training together, for equal and unequal clients."""

from collections.abc import Mapping
from typing import Any

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, Point, Sweep, Table


def _plan(
    key: str, label: str, defense: str, *protect: dict[str, Any], server: Mapping[str, Any] | None = None
) -> Point:
    steps = {} if server is None else {"federation.server": dict(server)}
    return Point(key, label, {"defense.name": defense, "federation.protect": list(protect), **steps})


def _decay(rate: float) -> dict[str, Any]:
    return {"name": "weight_decay", "rate": rate}


COOLING = {"name": "cooling"}
PLAIN_STEPS = {"optimizer": "sgd", "lr": 1.0}
GENTLER_STEPS = {"optimizer": "adam", "lr": 0.001}


def _private(noise: float) -> dict[str, Any]:
    return {"name": "dp_sgd", "clip": 1.0, "noise": noise}


def _attack(
    name: str, label: str, beside: Mapping[str, Any] | None = None, *, key: str | None = None, **options: Any
) -> Point:
    """An attack on 600 targets. They are said here: what a base says of attacks is lost where a point names one."""
    settings = {"name": name, "targets": 600, **options}
    return Point(key or name, label, {**{f"attack.{k}": v for k, v in settings.items()}, **(beside or {})})


PLANS = Axis(
    "plan",
    "Plan",
    (
        _plan("fedavg", "FedAvg", "fedavg"),
        _plan("reputation", "reputation_atm", "reputation_atm"),
        _plan("decay-0.002", "FedAvg, decay 0.002", "fedavg", _decay(0.002)),
        _plan("decay-0.005", "FedAvg, decay 0.005", "fedavg", _decay(0.005)),
        _plan("decay-0.01", "FedAvg, decay 0.01", "fedavg", _decay(0.01)),
        _plan("cooling", "FedAvg, cooling", "fedavg", COOLING),
        _plan(
            "clipped-decay-0.002-cooling",
            "norm_clipping, decay 0.002, cooling",
            "norm_clipping",
            _decay(0.002),
            COOLING,
        ),
        _plan(
            "clipped-decay-0.01-cooling", "norm_clipping, decay 0.01, cooling", "norm_clipping", _decay(0.01), COOLING
        ),
        _plan("decay-0.01-cooling", "FedAvg, decay 0.01, cooling", "fedavg", _decay(0.01), COOLING),
        _plan(
            "reputation-decay-0.01-cooling",
            "reputation_atm, decay 0.01, cooling",
            "reputation_atm",
            _decay(0.01),
            COOLING,
        ),
        *(
            _plan(f"{key}-{steps}-cooling", f"{rule}, {label}, cooling", rule, COOLING, server=server)
            for key, rule in (("clipped", "norm_clipping"), ("reputation", "reputation_atm"))
            for steps, label, server in (("sgd", "SGD 1", PLAIN_STEPS), ("gentle", "Adam 0.001", GENTLER_STEPS))
        ),
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
                *(_attack(point.key, point.label) for point in paper.attacks().points),
                _attack("blend", "Blend"),
                _attack("sleeper", "Sleeper", until=10),
                _attack("alternating", "Alternating"),
                _attack("few_targets", "Few targets", inner="fedpoisonmia"),
                _attack("shadow", "Shadow"),
                _attack("shadow", "Shadow of clipping", key="shadow-clipping", target_rule={"name": "norm_clipping"}),
                _attack("tangent", "Tangent"),
                _attack("colluders", "Two colluders", {"federation.malicious": 2}),
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
        "evaluation": {"design": "coin", "every": 5},
    },
    metrics=("auc_worst", "auc", "tpr_at_fpr_01", "test_accuracy"),
    fit_rules=True,
)
