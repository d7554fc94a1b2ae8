"""The tensors that a round needs are counted, the same every time, so that they can be held to a bound."""

from __future__ import annotations

import pytest

from benchmarks import round as bench


@pytest.mark.parametrize("name", ["mlp_0.3M", "mlp_3.2M"])
def test_a_round_on_records_needs_its_updates_and_four_vectors(name: str) -> None:
    """The parameters, the optimizer's two moments and the aggregate; batches and activations come before that one."""
    case = bench.CASES[name]
    picked = bench.simulation(case["model"], case["shape"], case["classes"]).setting.picked
    figures = bench.memory(case)
    assert figures["kept_floats_per_parameter"] + figures["passing_floats_per_parameter"] < picked + 4.01
