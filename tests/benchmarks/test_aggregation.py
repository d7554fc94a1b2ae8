"""The benchmark of the rules measures every rule, and compares with what others have."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import aggregation
from benchmarks.aggregation_others import others
from benchmarks.memory import extra_memory
from scapegoat.aggregation import registry
from scapegoat.errors import InputError


def test_every_rule_is_measured_and_compared() -> None:
    threads = torch.get_num_threads()
    figures = aggregation.run(quick=True, sizes=((8, 4000),))
    assert torch.get_num_threads() == threads
    json.dumps(figures)
    (case,) = figures["cases"]
    assert set(case["rules"]) == set(registry.names())
    assert all(f["seconds"] > 0 and f["times_mean"] > 0 for f in case["rules"].values())
    assert {name for name, f in case["rules"].items() if "sketched" in f} >= {"memory_atm", "reputation_atm"}
    assert {"paper_loop"} <= set(case["against"]["atm"])
    assert {"torch"} <= set(case["against"]["median"])
    assert all(f["speedup"] > 0 for kinds in case["against"].values() for f in kinds.values())


def test_rules_that_are_named_are_measured_alone_beside_atm() -> None:
    (case,) = aggregation.run(quick=True, sizes=((8, 4000),), rules=("median",))["cases"]
    assert set(case["rules"]) == {"atm", "median"} >= set(case["against"])
    with pytest.raises(InputError, match="'modus' is no rule"):
        aggregation.run(quick=True, sizes=((8, 4000),), rules=("modus",))


def test_others_compute_the_same() -> None:
    """A comparison is fair only if both sides give the same answer."""
    updates = torch.randn(9, 500, generator=torch.Generator().manual_seed(0))
    options = {"krum": {}, "bulyan": {}}
    for other in others(updates):
        if other.function is None or other.rule == "top_k":
            continue
        theirs = other.function()
        theirs = theirs.values if hasattr(theirs, "values") and not isinstance(theirs, torch.Tensor) else theirs
        theirs = torch.as_tensor(theirs[0] if isinstance(theirs, list) else theirs).float()
        own = registry.get(other.rule, **options.get(other.rule, {}))(updates).update
        if (other.kind, other.rule) == ("flower", "bulyan"):
            continue  # its tie-breaking around the median differs
        assert torch.allclose(own, theirs, atol=1e-5), (other.kind, other.rule)


def test_what_takes_minutes_is_left_out_and_named() -> None:
    skipped = [other for other in others(torch.empty(200, 1).expand(200, 3_200_000)) if other.function is None]
    assert {"atm", "multi_krum"} <= {other.rule for other in skipped}
    assert all(other.why_not for other in skipped)


def test_extra_memory_sees_what_a_call_allocates() -> None:
    size = 64 << 20
    share = extra_memory(lambda: torch.ones(size // 4), size)
    if share is not None:
        assert 0.9 < share < 1.5
        assert (extra_memory(lambda: None, size) or 0) < 0.3
