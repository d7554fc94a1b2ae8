"""Whole rounds on the strict device with every other choice that a rule, an attack or a protection offers."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

from scapegoat import aggregation, attacks, protections
from scapegoat.registry import Registry
from tests.devices.test_whole_rounds import assert_carried, spec

ELSEWHERE = {"knowledge"}
"""Options whose choices other tests go through."""

NEEDED: dict[tuple[str, str], dict[str, Any]] = {
    ("dp", "accounting"): {"clip": 1.0, "noise_multiplier": 0.01},
}
"""What an option cannot do without."""


def choices(annotation: Any) -> list[Any]:
    """The values that can be listed: of a bool, of literals, also among others."""
    if annotation is bool:
        return [False, True]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) is Annotated:
        return choices(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [value for part in get_args(annotation) for value in choices(part)]
    return []


def others(registry: Registry[Any]) -> Iterator[Any]:
    """Every component with one option that is not the default, all of them in turn."""
    for name in registry.names():
        for option, field in registry.cls(name).model_fields.items():
            for value in choices(field.annotation):
                if option not in ELSEWHERE and value != field.default:
                    written = {"name": name, option: value} | NEEDED.get((name, option), {})
                    yield pytest.param(written, id=f"{name}-{option}-{value}")


@pytest.mark.parametrize("rule", others(aggregation.registry))
def test_every_choice_of_a_rule_stays_on_the_device(rule: dict[str, Any]) -> None:
    assert_carried(spec(defense=rule))


@pytest.mark.parametrize("attack", others(attacks.registry))
def test_every_choice_of_an_attack_stays_on_the_device(attack: dict[str, Any]) -> None:
    assert_carried(spec(attack=attack | {"targets": 16, "mask": 10}, defense="atm"))


@pytest.mark.parametrize("protection", others(protections.registry))
def test_every_choice_of_a_protection_stays_on_the_device(protection: dict[str, Any]) -> None:
    assert_carried(spec(federation={"protect": [protection]}))


@pytest.mark.parametrize("attack", attacks.registry.names())
def test_every_attack_on_local_epochs_stays_on_the_device(attack: str) -> None:
    fewer = {"evaluations": 4} if "evaluations" in attacks.registry.cls(attack).model_fields else {}
    federation = {"local": {"name": "epochs", "lr": 0.01}, "batch_size": 32}
    assert_carried(
        spec(federation=federation, attack={"name": attack, "targets": 16, "mask": 10, **fewer}, defense="atm")
    )


NUMBERS: list[Any] = [
    {"name": "centered_clipping", "radius": 0.1},
    {"name": "norm_clipping", "norm": 0.1},
    {"name": "dnc", "malicious": 2},
    {"name": "reputation_atm", "probation": 0, "patience": 1},
]


@pytest.mark.parametrize("rule", NUMBERS, ids=str)
def test_rules_whose_numbers_lead_elsewhere_stay_on_the_device(rule: dict[str, Any]) -> None:
    assert_carried(spec(defense=rule, federation={"rounds": 3}))


ATTACKS: list[dict[str, Any]] = [
    {"name": "sleeper", "until": 1},
    {"name": "sleeper", "until": 1, "inner": {"name": "tangent"}},
    {"name": "colluders", "inner": {"name": "tangent"}},
    {"name": "few_targets", "inner": {"name": "agrevader"}},
    {"name": "fedpoisonmia", "rounds_of_refinement": 1},
    {"name": "fedpoisonmia", "alpha": 0.5},
    {"name": "alie", "z": 1.0},
    {"name": "mimic", "peer": 1},
    {"name": "adaptive", "target_rule": "norm_clipping", "evaluations": 4},
    {"name": "adaptive", "target_rule": "median", "evaluations": 4},
    {"name": "shadow", "target_rule": "memory_atm", "evaluations": 4},
]
"""What does not happen in two rounds with the options that an attack has by itself."""


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attacks_whose_numbers_lead_elsewhere_stay_on_the_device(attack: dict[str, Any]) -> None:
    assert_carried(spec(attack=attack | {"targets": 16, "mask": 10}, defense="atm", federation={"rounds": 3}))
