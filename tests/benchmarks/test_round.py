"""The tensors that a round needs are counted, the same every time, so that they can be held to a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import round as bench


@pytest.mark.parametrize("name", ["mlp_0.3M", "mlp_3.2M"])
def test_a_round_on_records_needs_its_updates_and_four_vectors(name: str) -> None:
    """The parameters, the optimizer's two moments and the aggregate; batches and activations come before that one."""
    case = bench.CASES[name]
    picked = bench.simulation(case["model"], case["shape"], case["classes"]).setting.picked
    figures = bench.memory(case)
    assert figures["kept_floats_per_parameter"] + figures["passing_floats_per_parameter"] < picked + 4.01


def test_the_verdict_is_on_bare_passes_and_on_the_best_single_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAPEGOAT_CACHE", str(tmp_path))
    monkeypatch.setattr(bench, "memory", lambda case: {})
    case = {"model": {"name": "mlp", "hidden": [8]}, "shape": (20,), "classes": 3}
    for seconds, limit, holds in [(1.3, 1.4, True), (1.5, 1.4, False), (1.3, 1.2, False)]:

        def timed(functions: dict[str, Any], repeats: int, seconds: float = seconds) -> dict[str, float]:
            return dict.fromkeys(functions, 1.35) | {"bare": 1.0, "measured": seconds}

        monkeypatch.setattr(bench, "interleaved", timed)
        figures = bench._case("small", case | {"limit": limit}, 1)["measured"]
        assert (figures["ratio"], figures["limit"], figures["holds"]) == (seconds, limit, holds)
        assert figures["times_best_route"] == seconds / min(seconds, 1.35)
    monkeypatch.setattr(
        bench, "interleaved", lambda functions, repeats: dict.fromkeys(functions, 1.0) | {"measured": 1.06}
    )
    assert not bench._case("small", case | {"limit": 1.4}, 1)["measured"]["holds"]
