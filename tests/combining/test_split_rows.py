"""Updates whose columns lie apart give every rule's answer bit for bit, and hardly any rule brings them together."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scapegoat import chunked_sums, geometry
from scapegoat.aggregation import AggregationContext, get, registry
from scapegoat.chunked_sums import CHUNK
from scapegoat.combining.pipeline import parse
from scapegoat.combining.stack import stacked
from tests.aggregation.inputs import context, make
from tests.combining.split import Here, split

D = 5 * CHUNK + 1234
SIZES = [(1, 100), (3, 2 * CHUNK), (8, D), (10, D + 1), (60, D)]
SKETCHED = [{"name": name, "sketch": 1000} for name in ("memory_atm", "reputation_atm", "foolsgold")]
PIPELINES = [
    [{"name": "norm_clipping"}, {"name": "atm"}],
    [{"name": "bucketing"}, {"name": "median"}],
    [{"name": "nearest_neighbour_mixing"}, {"name": "trimmed_mean"}],
]
RULES = [*registry.names(), *SKETCHED, *PIPELINES]
GATHER = ("nearest_neighbour_mixing", "bucketing")


@pytest.mark.parametrize("places", [1, 2, 7])
@pytest.mark.parametrize(("n", "d"), SIZES)
def test_products_and_norms_are_those_of_one_matrix(n: int, d: int, places: int) -> None:
    rows = make(n, n, d)
    apart = Here(rows, places)
    assert torch.equal(geometry.gram(apart), geometry.gram(rows))
    assert torch.equal(geometry.squared_norms(apart), geometry.squared_norms(rows))
    assert torch.equal(geometry.products(apart, [rows[0]]), geometry.products(rows, [rows[0]]))
    assert torch.equal(apart[n - 1], rows[n - 1])
    if n > 2:
        chosen = range(0, n, 2)
        some, other = apart.some(chosen), [rows[i] for i in chosen]
        assert torch.equal(geometry.gram(some), geometry.gram(other))
        assert torch.equal(geometry.squared_norms(some), geometry.squared_norms(other))


@pytest.mark.parametrize("places", [2, 3, 4, 5])
def test_sums_of_many_blocks_keep_their_order(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chunks per block, so that places hold whole blocks or parts of one, as with very many rows."""
    monkeypatch.setattr(chunked_sums, "BLOCK_BYTES", 4 * 10 * 10 * 2)
    rows = make(0, 10, 8 * CHUNK + 99)
    assert torch.equal(geometry.gram(Here(rows, places)), geometry.gram(rows))


def test_nearly_parallel_and_tiny_rows_are_computed_again_alike() -> None:
    rows = make(0, 6, D, kind="close")
    rows[4] *= 1e-20
    assert torch.equal(geometry.gram(Here(rows, 3)), geometry.gram(rows))


@pytest.mark.parametrize("places", [4])
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("malformed", [False, True])
def test_every_rule_answers_as_for_a_matrix(rule: object, places: int, malformed: bool) -> None:
    chosen = parse(rule)
    here: dict[str, Tensor] = {}
    there: dict[str, Tensor] = {}
    for r in range(3):
        known = contexts(r, here, there)
        updates = make(r, 9, D, kind="shared")
        if malformed:
            updates[2, D - 1] = torch.nan
        expected = chosen(stacked(updates), known[0])
        apart = split(updates, places)
        have = chosen(apart, known[1])
        assert torch.equal(have.update, expected.update)
        assert torch.equal(have.kept, expected.kept)
        assert have.notes == expected.notes
    assert here.keys() == there.keys()
    assert all(torch.equal(here[key], there[key]) for key in here)


@pytest.mark.parametrize("rule", [n for n in registry.names() if n not in GATHER], ids=str)
def test_rules_bring_no_more_than_a_row_to_one_place(rule: str) -> None:
    apart = split(make(0, 9, D, kind="shared"))
    get(rule)(apart, contexts(0, {})[0])
    assert isinstance(apart.rows, Here)
    assert not apart.rows.gathered


def contexts(r: int, *states: dict[str, Tensor]) -> list[AggregationContext]:
    """A context for each state, with the same randomness."""
    return [context(9, D, seed=r, state=state) for state in states]
