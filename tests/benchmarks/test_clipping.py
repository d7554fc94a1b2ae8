"""The tensors that clipping needs are counted, the same every time, so that they can be held to a bound."""

from __future__ import annotations

import pytest

from benchmarks import clipping


@pytest.mark.parametrize("name", ["mlp_0.3M", "mlp_3.2M"])
def test_clipped_gradients_need_no_more_than_twice_the_memory_of_plain_ones(name: str) -> None:
    case = clipping.CASES[name]
    functions = clipping.passes(case)
    for function in functions.values():
        function()
    assert clipping.memory(functions, clipping.updates_of(case)) < clipping.MEMORY_LIMIT
