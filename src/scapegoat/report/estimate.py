"""Arithmetic of figures with intervals: over seeds, and between runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, mean, stdev

from scapegoat.membership.metrics import Estimate

LEVEL = 0.95


def over_seeds(estimates: Sequence[Estimate], low: float = 0.0, high: float = 1.0) -> Estimate:
    """Mean over seeds with Student's t interval, cut to [low, high]; a single run keeps its own interval.

    Each seed draws other targets, so the spread between seeds holds the sampling of targets too. A few seeds can agree
    by accident, though (all 1.00), so the interval is never narrower than the one from the number of targets, pooled as
    if seeds differed in nothing else: the mean distance to each seed's own bound, over the square root of their number.
    """
    if not estimates:
        raise ValueError("no estimate to pool")
    if len(estimates) == 1:
        return estimates[0]
    count = len(estimates)
    centre = mean(e.value for e in estimates)
    if not all(e.bounded for e in estimates) and len({e.value for e in estimates}) == 1:
        return Estimate(centre)  # equal figures without intervals of their own: nothing says how far they may be off
    half = _student(count - 1) * stdev(e.value for e in estimates) / math.sqrt(count)
    below = above = half
    if all(e.bounded for e in estimates):
        below = max(half, mean(e.value - e.low for e in estimates) / math.sqrt(count))
        above = max(half, mean(e.high - e.value for e in estimates) / math.sqrt(count))
    # A mean of values beyond the usual range (a negative advantage) must stay within its own interval.
    return Estimate(centre, min(max(centre - below, low), centre), max(min(centre + above, high), centre))


def difference(one: Estimate, other: Estimate) -> Estimate:
    """`one - other` with Newcombe's square-and-add interval; no interval if either has none.

    It takes both as independent. Cells of one seed share their targets and so tend to agree: the interval errs on the
    wide side.
    """
    value = one.value - other.value
    if not (one.bounded and other.bounded):
        return Estimate(value)
    below = math.hypot(one.value - one.low, other.high - other.value)
    above = math.hypot(one.high - one.value, other.value - other.low)
    return Estimate(value, value - below, value + above)


def paired(pairs: Sequence[tuple[Estimate, Estimate]], comparisons: int = 1) -> Estimate:
    """Mean of `one - other` over seeds: what both sides of a seed share (targets, start, batches) cancels out."""
    return stretched(
        over_seeds([difference(one, other) for one, other in pairs], low=-math.inf, high=math.inf), comparisons
    )


def stretched(estimate: Estimate, comparisons: int) -> Estimate:
    """The interval widened so that `comparisons` of its kind hold together (Bonferroni, on the normal scale)."""
    if not estimate.bounded or comparisons <= 1:
        return estimate
    ratio = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / comparisons) / NormalDist().inv_cdf((1 + LEVEL) / 2)
    below, above = estimate.value - estimate.low, estimate.high - estimate.value
    return Estimate(estimate.value, estimate.value - below * ratio, estimate.value + above * ratio)


def _student(freedom: int) -> float:
    from scipy import stats  # half a second to import: only where several seeds ask for it

    return float(stats.t.ppf((1 + LEVEL) / 2, freedom))
