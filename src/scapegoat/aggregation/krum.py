"""Krum (Blanchard et al. 2017): the one update closest to its neighbours."""

from __future__ import annotations

from scapegoat.aggregation.multi_krum import Malicious, Neighbours, multi_krum
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_malicious, register
from scapegoat.combining.stack import screened


@screened(by_gram=True)
def krum(stack: Stack, malicious: int = 1, neighbours: Neighbours = "n-f-2") -> Aggregate:
    """The update with the smallest sum of squared distances to its n-f-2 nearest others.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> krum(updates, malicious=1).kept.tolist()
    [True, False, False, False, False]
    """
    return multi_krum(stack, malicious, 1, neighbours)


@register("krum")
class Krum(Rule):
    """The one update closest to its neighbours."""

    turn_free = True
    shift_free = True
    by_gram = True
    malicious: Malicious = 1
    """f, the hostile updates that it must stand."""
    neighbours: Neighbours = "n-f-2"
    """How many nearest others a score counts: n-f-2 (the original), or the paper's n-f-1."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The update picked."""
        return krum(stack, self.malicious, self.neighbours)

    def check(self, updates_per_step: int) -> None:
        """At least one neighbour in the score."""
        fewer = 2 if self.neighbours == "n-f-2" else 1
        check_malicious(self.malicious, updates_per_step, self.malicious + fewer + 1, f"Krum with {self.neighbours}")
