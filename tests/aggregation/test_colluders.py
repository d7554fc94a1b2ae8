"""Krum's promise: f identical updates far from the others are never among those kept, for any n > 2f + 2."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scapegoat.aggregation import bulyan, krum, multi_krum

D = 40


def colluding(n: int, f: int) -> Tensor:
    """n - f honest updates of unit spread, then f identical ones ten spreads away."""
    draw = torch.Generator().manual_seed(100 * n + f)
    updates = torch.randn(n, D, generator=draw) / D**0.5
    updates[n - f :] = 10 * torch.ones(D) / D**0.5
    return updates


@pytest.mark.parametrize("n", range(5, 51))
def test_multi_krum_as_it_is_by_default_keeps_no_colluder_of_any_number(n: int) -> None:
    """Every n up to 50 and every f with n > 2f + 2, half of the updates picked or as many as are honest."""
    for f in range(1, (n - 3) // 2 + 1):
        updates = colluding(n, f)
        assert not multi_krum(updates, f).kept[n - f :].any(), f
        assert not multi_krum(updates, f, n - f).kept[n - f :].any(), f


@pytest.mark.parametrize("n", [*range(5, 21), 30, 41, 50])
def test_multi_krum_keeps_no_colluder_while_the_honest_are_enough(n: int) -> None:
    for f in range(1, (n - 3) // 2 + 1):
        updates = colluding(n, f)
        for neighbours in ("n-f-2", "n-f-1"):
            assert not krum(updates, f, neighbours).kept[n - f :].any()
            for select in (0.5, n - f):
                once = multi_krum(updates, f, select, neighbours)
                assert not once.kept[n - f :].any(), (f, select)
                assert once.notes["selected"] == int(once.kept.sum()) == (n // 2 if select == 0.5 else n - f)
                again = multi_krum(updates, f, select, neighbours, rescore=True)
                assert not again.kept[n - f :].any(), (f, select)
                assert again.notes["selected"] == int(again.kept.sum()) == min(once.notes["selected"], n - 2 * f - 2)


def test_scoring_again_is_what_it_was_where_enough_are_left() -> None:
    """One of eight, half of them picked: the setting of the paper's tables."""
    updates = colluding(8, 1)
    assert int(multi_krum(updates, 1, rescore=True).kept.sum()) == 4


@pytest.mark.parametrize(("n", "f"), [(7, 1), (11, 2), (50, 11)])
def test_bulyan_is_out_of_their_reach_whomever_krum_picked(n: int, f: int) -> None:
    """Its last picks may be colluders, as published; the values around the median are not theirs."""
    updates = colluding(n, f)
    assert float((bulyan(updates, f).update - updates[: n - f].mean(0)).norm()) < 1
