"""Federations small enough for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from scapegoat import models
from scapegoat.aggregation import Rule
from scapegoat.aggregation import get as get_rule
from scapegoat.attacks import Attack
from scapegoat.attacks import get as get_attack
from scapegoat.data.base import Dataset, DataSpec
from scapegoat.data.splits import split
from scapegoat.federation import FederationSetting
from scapegoat.federation.cast import cast
from scapegoat.federation.simulation import Simulation


def dataset(shape: tuple[int, ...] = (12,), records: int = 600, classes: int = 4) -> Dataset:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((records, *shape), dtype=np.float32))
    return Dataset("toy", x, torch.from_numpy(rng.integers(0, classes, records)), classes)


def federation(
    *,
    attack: str | Attack = "passive",
    rule: str | Rule = "fedavg",
    model: dict[str, Any] | None = None,
    shape: tuple[int, ...] = (12,),
    seed: int = 0,
    data: Dataset | None = None,
    validation: int = 10,
    **setting: Any,
) -> Simulation:
    data = dataset(shape) if data is None else data
    options = FederationSetting(**{"clients": 8, "malicious": 2, "rounds": 4, "batch_size": 8, **setting})
    attack = get_attack(attack, targets=30, mask=20) if isinstance(attack, str) else attack
    splits = split(
        data,
        DataSpec(validation=validation),
        partition=options.partition,
        benign=options.benign,
        targets=attack.targets,
        mask=attack.mask,
        seed=seed,
    )
    everybody = cast(
        dataset=data,
        splits=splits,
        model=models.build(models.registry.parse(model or {"name": "mlp", "hidden": [6]}), shape, data.classes, seed=1),
        setting=options,
        attack=attack,
        rule=get_rule(rule) if isinstance(rule, str) else rule,
        seed=seed,
    )
    return Simulation(everybody, evaluate_every=2)
