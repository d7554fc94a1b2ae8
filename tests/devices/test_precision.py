"""Passes in bfloat16: close to those in float32, while updates, rules and steps stay float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scapegoat import attacks, protections
from scapegoat.federation.local import registry as local_rules
from scapegoat.gradients import GradientOracle
from tests.devices.test_whole_rounds import images, margins, ready, spec, trained


def short(plain: dict[str, Any], precision: str) -> np.ndarray:
    return trained(ready({**plain, "precision": precision}))


@pytest.mark.parametrize("kind", ["Net", "Norms", "Attention", "Tied"])
def test_gradients_are_near_those_of_float32(kind: str) -> None:
    plain = spec(model={"name": "import", "factory": f"tests.devices.own:{kind}"})
    exact, rough = (ready({**plain, "precision": precision}) for precision in ("float32", "bfloat16"))
    mask = exact.cast.attacker.mask
    found = [s.model.gradient(s.server.parameters, mask.x, mask.y)[0] for s in (exact, rough)]
    assert found[1].dtype == torch.float32
    apart = float((found[1] - found[0]).norm() / found[0].norm())
    assert 0 < apart < 0.02


@pytest.mark.parametrize("attack", attacks.registry.names())
def test_every_attack_runs_on_passes_in_bfloat16(attack: str) -> None:
    plain = spec(attack={"name": attack, "targets": 16, "mask": 10}, defense="fang")
    assert np.isfinite(short(plain, "bfloat16")).all()


@pytest.mark.parametrize("local", local_rules.names())
@pytest.mark.parametrize("name", protections.registry.names())
def test_every_protection_trains_on_passes_in_bfloat16(name: str, local: str) -> None:
    plain = spec(federation={"protect": [{"name": name}], "local": {"name": local}})
    assert np.isfinite(short(plain, "bfloat16")).all()


def test_rounds_end_near_those_of_float32() -> None:
    plain = spec(attack={"name": "fedpoisonmia", "targets": 16, "mask": 10}, federation={"rounds": 5})
    exact, rough = short(plain, "float32"), short(plain, "bfloat16")
    assert 0 < np.abs(exact - rough).max() < 0.1 * np.abs(exact).max()


def test_images_pass_in_bfloat16(tmp_path: Path) -> None:
    plain = spec(
        model={"name": "resnet20"},
        data=images(tmp_path),
        attack={"name": "fedpoisonmia", "targets": 8, "mask": 6},
        federation={"clients": 4, "rounds": 1, "malicious": 1},
    )
    assert np.isfinite(short(plain, "bfloat16")).all()


def test_per_sample_gradients_add_up_to_the_mean_in_bfloat16() -> None:
    simulation = ready({**spec(), "precision": "bfloat16"})
    mask = simulation.cast.attacker.mask
    oracle = GradientOracle(simulation.model, simulation.server.parameters)
    samples = oracle.per_sample(mask.x, mask.y)
    together = samples.combine(torch.full((len(mask),), 1 / len(mask)))
    mean = oracle.mean(mask.x, mask.y)
    assert float((together - mean).norm() / mean.norm()) < 0.02
    gram = samples.gram()
    assert float(gram.mean()) == pytest.approx(float(together.double() @ together.double()), rel=1e-3)


def assert_carried(plain: dict[str, Any]) -> None:
    """In bfloat16 the rounds pass on the strict device, and come to what they come to on the host."""
    rough = {**plain, "precision": "bfloat16"}
    there, here = margins(rough, strictly=True), margins(rough, strictly=False)
    assert np.abs(there - here).max() <= 0.02 * np.abs(here).max() + 2e-3
    assert not np.array_equal(there, margins(plain, strictly=True))


@pytest.mark.parametrize("attack", ["fedpoisonmia", "blend", "tangent"])
@pytest.mark.parametrize("local", local_rules.names())
def test_passes_in_bfloat16_stay_on_the_device(local: str, attack: str) -> None:
    federation = {"local": {"name": local}, "batch_size": 32}
    assert_carried(spec(federation=federation, attack={"name": attack, "targets": 16, "mask": 10}, defense="fang"))


@pytest.mark.parametrize("kind", ["Net", "Norms", "Attention", "Tied"])
def test_models_of_ones_own_stay_on_the_device_in_bfloat16(kind: str) -> None:
    model = {"name": "import", "factory": f"tests.devices.own:{kind}"}
    federation = {"clients": 5, "malicious": 1, "batch_size": 32}
    assert_carried(spec(model=model, attack={"name": "fedpoisonmia", "targets": 8, "mask": 6}, federation=federation))


def test_images_in_bfloat16_stay_on_the_device(tmp_path: Path) -> None:
    federation = {"clients": 4, "rounds": 1, "malicious": 1}
    attack = {"name": "fedpoisonmia", "targets": 8, "mask": 6}
    assert_carried(spec(model={"name": "resnet20"}, data=images(tmp_path), attack=attack, federation=federation))


@pytest.mark.parametrize("name", protections.registry.names())
def test_protections_on_passes_in_bfloat16_stay_on_the_device(name: str) -> None:
    assert_carried(spec(federation={"protect": [{"name": name}]}))
