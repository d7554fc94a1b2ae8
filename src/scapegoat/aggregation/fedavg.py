"""FedAvg: the mean of the updates (McMahan et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_own_rows, register
from scapegoat.combining.stack import screened


@screened(plain=True)
def fedavg(stack: Stack, weights: Sequence[float] | None = None) -> Aggregate:
    """sum_k w_k g_k / sum_k w_k, one weight per update that arrived; equal weights by default.

    Weights come from clients too: one that is negative or not finite counts as zero, and if none is positive the
    mean is unweighted.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> fedavg(updates[:2], weights=[3, 1]).update.tolist()
    [1.0625, 0.9375]
    """
    if weights is None:
        return stack.aggregate(stack.mean())
    given = torch.tensor([_as_float(w) for w in weights], dtype=torch.float64)[stack.accepted]
    given = torch.where(given.isfinite() & (given > 0), given, 0.0)
    if not bool((given > 0).any()):
        return stack.aggregate(stack.mean())
    share = given / given.max()  # by the largest first: the sum cannot overflow
    return stack.aggregate(stack.weighted(share / share.sum()), share > 0)


def _as_float(weight: float) -> float:
    try:
        return float(weight)
    except OverflowError:  # a whole number can be larger than any float
        return math.inf


@register("fedavg")
class FedAvg(Rule):
    """The mean of the updates, weighted by sample counts if `weighted`."""

    turn_free = True
    plain = True
    shift_free = True
    resists = False
    weighted: bool = False
    """Whether updates count by their clients' numbers of records."""

    @property
    def sums_only(self) -> bool:
        """A mean is a sum; a client weighs its own update."""
        return True

    def follows(self, stages: Sequence[Rule]) -> None:
        """Merged clients have no sample count of their own."""
        if self.weighted:
            check_own_rows(self, "weighted", stages)

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The (weighted) mean."""
        if not self.weighted:
            return fedavg(stack)
        counts = dict(zip(stack.places, context.sample_counts, strict=True))
        return fedavg(stack, weights=[counts.get(i, 0) for i in range(len(stack.accepted))])
