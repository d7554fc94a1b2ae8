"""Whole rounds on a device that refuses to mix with the host, for all that is registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapegoat import aggregation, attacks, models, protections, tasks
from scapegoat.experiments.spec import parse
from scapegoat.experiments.staging import staged
from scapegoat.federation.local import registry as local_rules
from scapegoat.federation.schedule import registry as schedules
from scapegoat.federation.simulation import Simulation
from tests.devices.strict import on_the_device, round_on

ROUNDS = 2


def spec(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "data": {"name": "hospital", "records": 500, "features": 40, "classes": 4, "validation": 20},
        "model": {"name": "mlp", "hidden": [16, 12]},
        "federation": {"rounds": ROUNDS, "clients": 9, "malicious": 2, "fraction": 1.0, "batch_size": 8},
        "attack": {"name": "blend", "targets": 16, "mask": 10},
        "defense": "fedavg",
        "evaluation": {"every": 1},
    }
    federation = {**plain["federation"], **changes.pop("federation", {})}
    return {**plain, **changes, "federation": federation}


def ready(plain: dict[str, Any]) -> Simulation:
    wanted = parse(plain)
    return Simulation(staged(wanted), wanted.evaluation.every, server_view=wanted.evaluation.server_view)


def margins(plain: dict[str, Any], strictly: bool, float64: bool = True) -> np.ndarray:
    """The targets' margins in every round, on the device or on the host."""
    if not strictly:
        return trained(ready(plain))
    with on_the_device(float64):
        simulation = ready(plain)
        with round_on(simulation.model.d):
            return trained(simulation)


def trained(simulation: Simulation) -> np.ndarray:
    while not simulation.done:
        simulation.run_round()
    return simulation.margins


def assert_carried(plain: dict[str, Any], float64: bool = True) -> None:
    """The rounds pass on the device, and come to what they come to on the host."""
    there, here = margins(plain, strictly=True, float64=float64), margins(plain, strictly=False)
    np.testing.assert_allclose(there, here, rtol=2e-3, atol=2e-3)


PRECISION = pytest.mark.parametrize("float64", [True, False], ids=["float64", "float32"])
"""Devices with and without it."""


@PRECISION
@pytest.mark.parametrize("rule", aggregation.registry.names())
def test_a_round_of_every_rule_stays_on_the_device(rule: str, float64: bool) -> None:
    assert_carried(spec(defense=rule), float64)


VARIANTS: list[Any] = [
    ["norm_clipping", "top_k", "median"],
    ["bucketing", "trimmed_mean"],
    ["nearest_neighbour_mixing", "krum"],
    ["client_momentum", "arc", "atm"],
    [{"name": "dp", "sigma": 0.001}, "atm"],
    {"name": "dp", "clip": 1.0, "noise_multiplier": 0.01},
    {"name": "fedavg", "weighted": True},
    {"name": "memory_atm", "sketch": 32},
    {"name": "reputation_atm", "sketch": 32},
    {"name": "foolsgold", "sketch": 32},
    {"name": "fldetector", "window": 1},
]


@pytest.mark.parametrize("rule", VARIANTS, ids=str)
def test_pipelines_and_other_options_of_rules_stay_on_the_device(rule: Any) -> None:
    assert_carried(spec(defense=rule, federation={"rounds": 3}))


@PRECISION
@pytest.mark.parametrize("knowledge", ["full", "partial"])
@pytest.mark.parametrize("attack", attacks.registry.names())
def test_a_round_of_every_attack_stays_on_the_device(attack: str, knowledge: str, float64: bool) -> None:
    fewer = {"evaluations": 4} if "evaluations" in attacks.registry.cls(attack).model_fields else {}
    options = {"name": attack, "targets": 16, "mask": 10, "knowledge": knowledge, **fewer}
    assert_carried(spec(attack=options, defense="atm"), float64)


@PRECISION
@pytest.mark.parametrize("rule", ["deepsight", "fltrust", "reputation_atm"])
def test_an_attack_with_a_copy_of_a_rule_stays_on_the_device(rule: str, float64: bool) -> None:
    aimed = {"name": "shadow", "targets": 16, "mask": 10, "target_rule": rule, "evaluations": 4}
    assert_carried(spec(attack=aimed, defense=rule), float64)


@pytest.mark.parametrize("name", protections.registry.names())
@pytest.mark.parametrize("local", local_rules.names())
def test_a_round_of_every_protection_and_local_rule_stays_on_the_device(name: str, local: str) -> None:
    batch_size = 8 if local == "gradient" else 32
    assert_carried(spec(federation={"protect": [{"name": name}], "local": {"name": local}, "batch_size": batch_size}))


def test_a_server_that_trains_on_records_of_its_own_stays_on_the_device() -> None:
    stopping = {"name": "early_stopping", "leakage": 0.99, "gap": 5.0}
    assert_carried(spec(federation={"protect": [stopping]}, attack={"name": "fedpoisonmia", "targets": 16, "mask": 10}))


@pytest.mark.parametrize(
    ("attack", "optimizer"), [("fedpoisonmia", "sgd"), ("agrevader", "momentum"), ("blend", "adam")]
)
def test_local_epochs_stay_on_the_device(attack: str, optimizer: str) -> None:
    federation = {"local": {"name": "epochs", "optimizer": optimizer, "lr": 0.01}, "batch_size": 32}
    assert_carried(spec(federation=federation, attack={"name": attack, "targets": 16, "mask": 10}))


@pytest.mark.parametrize("schedule", schedules.names())
def test_every_schedule_stays_on_the_device(schedule: str) -> None:
    options = {"tau_max": 2, "buffer": 4} if schedule == "async" else {}
    assert_carried(spec(federation={"schedule": {"name": schedule, **options}}))


@pytest.mark.parametrize("attack", ["passive", "fedpoisonmia"])
def test_the_view_of_a_curious_server_stays_on_the_device(attack: str) -> None:
    evaluation = {"every": 1, "server_view": True, "design": "coin"}
    assert_carried(spec(evaluation=evaluation, attack={"name": attack, "targets": 16, "mask": 10}))


OWN = {"import": {"name": "import", "factory": "tests.devices.own:Net"}}


# A module that is given in memory passes as an imported one does.
@pytest.mark.parametrize("model", sorted({*models.registry.names()} - {"given"}))
@pytest.mark.parametrize("attack", ["fedpoisonmia", "blend"])
def test_a_round_of_every_model_stays_on_the_device(model: str, attack: str, tmp_path: Path) -> None:
    written: dict[str, Any] = OWN.get(model, {"name": model})
    plain = spec(model=written, attack={"name": attack, "targets": 8, "mask": 6})
    if model not in ("mlp", "import"):
        plain["data"] = images(tmp_path)
        plain["federation"]["clients"], plain["federation"]["rounds"] = 4, 1
    assert_carried(plain)


def images(folder: Path) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (200, 3, 16, 16), dtype=np.uint8), draw.integers(0, 4, 200)
    np.savez(folder / "images.npz", x=x, y=y)
    return {"name": f"npz:{folder / 'images.npz'}", "validation": 10}


@pytest.mark.parametrize("kind", ["Norms", "Attention", "Tokens", "Tied", "Dropout"])
@pytest.mark.parametrize("local", local_rules.names())
def test_models_of_ones_own_stay_on_the_device(kind: str, local: str) -> None:
    """Layers whose gradients are read, and layers that are differentiated sample by sample."""
    plain = spec(
        model={"name": "import", "factory": f"tests.devices.own:{kind}"},
        attack={"name": "fedpoisonmia", "targets": 8, "mask": 6},
        federation={"local": {"name": local}, "clients": 5, "malicious": 1, "batch_size": 32},
    )
    assert_carried(plain)


@pytest.mark.parametrize("task", tasks.registry.names())
def test_a_round_of_every_task_stays_on_the_device(task: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.random((300, 20), dtype=np.float32)
    y: Any = {
        "classification": draw.integers(0, 4, 300),
        "binary": draw.integers(0, 2, 300),
        "multilabel": draw.integers(0, 2, (300, 4)),
        "regression": draw.normal(size=(300, 2)),
    }[task]
    np.savez(tmp_path / "records.npz", x=x, y=y)
    stated: dict[str, Any] = {"name": task} | ({} if task == "regression" else {"class_weights": "balanced"})
    data = {"name": f"npz:{tmp_path / 'records.npz'}", "validation": 20}
    attack = {"name": "fedpoisonmia", "targets": 8, "mask": 6}
    assert_carried(spec(task=stated, data=data, attack=attack, defense="fang"))
