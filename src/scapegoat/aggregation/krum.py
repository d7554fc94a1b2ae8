"""Krum (Blanchard et al. 2017): the one update closest to its neighbours."""

from __future__ import annotations

from scapegoat.aggregation.base import Aggregate, AggregationContext, Rule, Stack, check_malicious, register
from scapegoat.aggregation.multi_krum import Malicious, Neighbours, multi_krum
from scapegoat.aggregation.stack import screened


@screened(by_gram=True)
def krum(stack: Stack, malicious: int = 1, neighbours: Neighbours = "n-f-2") -> Aggregate:
    """The update with the smallest sum of squared distances to its n-f-2 nearest others."""
    return multi_krum(stack, malicious, 1, neighbours)


@register("krum")
class Krum(Rule):
    """The one update closest to its neighbours."""

    by_gram = True
    malicious: Malicious = 1
    neighbours: Neighbours = "n-f-2"

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The update picked."""
        return krum(stack, self.malicious, self.neighbours)

    def check(self, updates_per_step: int) -> None:
        """At least one neighbour in the score."""
        fewer = 2 if self.neighbours == "n-f-2" else 1
        check_malicious(self.malicious, updates_per_step, self.malicious + fewer + 1, f"Krum with {self.neighbours}")
