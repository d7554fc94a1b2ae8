"""Rules that ask for lengths and angles alone give the same answer in other coordinates."""

from __future__ import annotations

import pytest
import torch

from scapegoat.aggregation import AggregationContext, registry
from scapegoat.combining.rule import Aggregate, Stack

TURN_FREE = [name for name, rule in registry.classes() if rule.turn_free]


@pytest.mark.parametrize("name", TURN_FREE)
def test_turning_all_updates_turns_the_aggregate(name: str) -> None:
    """Over several rounds, so that what is remembered turns too."""
    generator = torch.Generator().manual_seed(3)
    turn, _ = torch.linalg.qr(torch.randn(40, 40, generator=generator))
    rule, states = registry.get(name), ({}, {})
    for _ in range(4):
        updates = torch.randn(9, 40, generator=generator) + 0.5
        contexts = [AggregationContext(tuple(range(9)), (1,) * 9, state=state) for state in states]
        plain, turned = rule(updates, contexts[0]), rule(updates @ turn, contexts[1])
        assert torch.equal(plain.kept, turned.kept)
        torch.testing.assert_close(plain.update @ turn, turned.update, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "top_k", "signguard"])
def test_rules_that_look_at_coordinates_do_not_claim_it(name: str) -> None:
    assert name not in TURN_FREE


def test_a_rule_that_is_made_of_one_does_not_inherit_the_claim() -> None:
    """What it does differently may look at coordinates."""
    atm = registry.cls("atm")

    class OfFewCoordinates(atm):  # type: ignore[misc, valid-type]
        def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
            found = super().aggregate(stack, context)
            return stack.aggregate(found.update.where(found.update.abs() > found.update.abs().median(), 0.0))

    class Claims(atm):  # type: ignore[misc, valid-type]
        turn_free = True

    assert atm.turn_free
    assert not OfFewCoordinates.turn_free
    assert not OfFewCoordinates().turn_free
    assert Claims.turn_free
