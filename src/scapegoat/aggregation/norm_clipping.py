"""Norm clipping: no update is longer than the median one, or than a given norm."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from scapegoat.combining.rule import Aggregate, AggregationContext, Stack, Transform, check_several, register
from scapegoat.combining.stack import screened


def median_of(values: Tensor) -> float:
    """The median of a vector; of an even number, the mean of the two in the middle."""
    ordered = values.sort().values
    n = len(ordered)
    return float((ordered[(n - 1) // 2] + ordered[n // 2]) / 2)


def clipped(stack: Stack, norm: float | None = None) -> tuple[Stack, float]:
    """g_k · min(1, S/|g_k|) for every row, and S: `norm`, or the median of the norms."""
    lengths = stack.norms()
    bound = median_of(lengths) if norm is None else norm
    return stack.scaled((bound / lengths.clamp_min(1e-300)).clamp_max(1.0)), bound


@screened()
def norm_clipping(stack: Stack, norm: float | None = None) -> Aggregate:
    """Mean of the updates, each shortened to at most `norm` (by default the median of the norms).

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> norm_clipping(updates, norm=1.0).update.norm().item() <= 1
    True
    """
    changed, bound = clipped(stack, norm)
    return changed.aggregate(changed.mean(), notes={"clip": bound})


@register("norm_clipping")
class NormClipping(Transform):
    """Shorten every update to at most `norm`, or to the median of the norms."""

    turn_free = True
    norm: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The norm that updates are clipped to; none: the median of the round."""

    @property
    def rowwise(self) -> bool:
        """A given norm is the same whatever the others send; the median is not."""
        return self.norm is not None

    def written(self, updates: int) -> int:
        """Rows are scaled where they are."""
        return 0

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The shortened rows."""
        changed, bound = clipped(stack, self.norm)
        return changed, {"clip": bound}

    def check(self, updates_per_step: int) -> None:
        """The median norm of one update clips nothing; a given norm does."""
        if self.norm is None:
            check_several(self.name, updates_per_step)
