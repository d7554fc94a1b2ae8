"""What the strict device is for: code that leaves the device, planted in a rule or an attack, does not pass a round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from scapegoat import devices
from scapegoat.aggregation import Aggregate, AggregationContext, Rule, Stack
from scapegoat.attacks import Attack, AttackerView, Crafted
from tests.devices.strict import DEVICE, MixedError, on_the_device, round_on
from tests.devices.test_whole_rounds import ROUNDS, ready, spec, trained

Fault = Callable[[Tensor], object]


def _to_the_host(row: Tensor) -> object:
    return row.cpu()


def _to_the_host_by_the_right_door(row: Tensor) -> object:
    return devices.host(row)


def _one_number(row: Tensor) -> object:
    return row[0].item()


def _a_float(row: Tensor) -> object:
    return float(row.sum())


def _a_decision(row: Tensor) -> object:
    return bool((row > 0).any())


def _a_list(row: Tensor) -> object:
    return row[:3].tolist()


def _an_array(row: Tensor) -> object:
    return row.numpy()


def _an_array_by_conversion(row: Tensor) -> object:
    return np.asarray(row)


def _a_tensor_of_the_hosts(row: Tensor) -> object:
    return row + torch.zeros(len(row))


def _an_index_of_the_hosts(row: Tensor) -> object:
    return row[torch.arange(3)]


def _a_mask(row: Tensor) -> object:
    return row[row > 0]


def _a_place_on_the_host(row: Tensor) -> object:
    return torch.empty(len(row)).copy_(row)


def _a_matrix_of_the_hosts(row: Tensor) -> object:
    return torch.stack([row, torch.ones(len(row))])


def _a_generator_of_the_hosts(row: Tensor) -> object:
    return row.clone().normal_(generator=torch.Generator())


def _numbers_of_the_hosts_generator(row: Tensor) -> object:
    return torch.randperm(len(row), generator=torch.Generator(), device=row.device)


FAULTS: list[Fault] = [
    _to_the_host,
    _to_the_host_by_the_right_door,
    _one_number,
    _a_float,
    _a_decision,
    _a_list,
    _an_array,
    _an_array_by_conversion,
    _a_tensor_of_the_hosts,
    _an_index_of_the_hosts,
    _a_mask,
    _a_place_on_the_host,
    _a_matrix_of_the_hosts,
    _a_generator_of_the_hosts,
    _numbers_of_the_hosts_generator,
]

planted: list[Fault] = []


class FaultyRule(Rule):
    """The mean, after something that a rule should not do."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean."""
        for fault in planted:
            fault(stack.rows[0])
        return stack.aggregate(stack.mean())


class FaultyAttack(Attack):
    """Honest training, after something that an attack should not do."""

    def craft(self, view: AttackerView) -> Crafted:
        """Honest updates."""
        for fault in planted:
            fault(view.peers[0])
        return Crafted(view.honest())


@pytest.fixture(autouse=True)
def _nothing_planted() -> None:
    planted.clear()


def in_a_rule() -> dict[str, object]:
    return spec(defense={"name": "tests.devices.test_planted_faults:FaultyRule"})


def in_an_attack() -> dict[str, object]:
    return spec(attack={"name": "tests.devices.test_planted_faults:FaultyAttack", "targets": 16, "mask": 10})


@pytest.mark.parametrize("where", [in_a_rule, in_an_attack])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
def test_a_planted_fault_does_not_pass(fault: Fault, where: Callable[[], dict[str, object]]) -> None:
    planted.append(fault)
    with on_the_device():
        simulation = ready(where())
        with round_on(simulation.model.d), pytest.raises((MixedError, RuntimeError, TypeError)):
            simulation.run_round()


@pytest.mark.parametrize("fault", [Tensor.double, lambda row: torch.zeros(3, dtype=torch.float64, device=row.device)])
def test_float64_does_not_pass_where_the_device_has_none(fault: Fault) -> None:
    planted.append(fault)
    with on_the_device(float64=False):
        simulation = ready(in_a_rule())
        with round_on(simulation.model.d), pytest.raises(MixedError, match="no float64"):
            simulation.run_round()


@pytest.mark.parametrize("where", [in_a_rule, in_an_attack])
def test_without_a_fault_the_same_rounds_pass(where: Callable[[], dict[str, object]]) -> None:
    with on_the_device():
        simulation = ready(where())
        assert simulation.model.device == simulation.server.parameters.device == DEVICE
        with round_on(simulation.model.d):
            trained(simulation)
    assert simulation.round == ROUNDS


def test_a_round_brings_no_more_to_the_host_than_it_needs() -> None:
    """For the mean: the products of the updates, the loss, the margins of the targets, the accuracy."""
    with on_the_device():
        simulation = ready(spec(attack={"name": "passive", "targets": 16, "mask": 10}))
        with round_on(simulation.model.d) as watch:
            simulation.run_round()
    assert sorted(watch.read) == [(), (), (9, 9), (16,)]
