"""What a round needs in memory is counted exactly, so that it can be held to its bound."""

from __future__ import annotations

import pytest

from scapegoat.experiments.bench import round as bench


@pytest.mark.parametrize("name", ["mlp_0.3M", "mlp_3.2M"])
def test_a_round_on_records_needs_its_updates_and_four_vectors(name: str) -> None:
    """The parameters, the optimizer's two moments and the aggregate; batches and activations come before that one."""
    case = bench.CASES[name]
    figures = bench.memory(case)
    picked = bench.simulation(case["model"], case["shape"], case["classes"]).setting.picked
    assert figures["kept_floats_per_parameter"] == pytest.approx(picked + 3, abs=0.001)
    assert 0.9 < figures["passing_floats_per_parameter"] < 1.01
