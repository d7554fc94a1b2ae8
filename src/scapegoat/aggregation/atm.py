"""Angular Trimmed-mean (ATM), the paper's defense."""

from __future__ import annotations

import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, Trim, check_trim, register, trim_count
from scapegoat.combining.stack import screened

RESOLUTION = 1e-7
"""Mean angles (radians) that differ by less are ties: float32 updates cannot tell them apart."""


@screened(by_gram=True)
def atm(stack: Stack, trim: int | float = 1) -> Aggregate:
    """Mean of the updates without the 2b whose mean angle to the others is largest (steps I to IV of the paper).

    With fewer than 2b + 1 well-formed updates, as many pairs as possible are dropped. Ties go by row order.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> atm(updates, trim=1).kept.tolist()
    [True, False, True, True, False]
    """
    b = trim_count(trim, len(stack))
    kept = smallest(geometry.mean_angles(stack.gram()), len(stack) - 2 * b)
    return stack.aggregate(stack.mean(kept), kept, {"trim": b})


def smallest(values: Tensor, count: int) -> Tensor:
    """Mask [n] of the `count` smallest angles; ties go by row order."""
    order = torch.argsort((values / RESOLUTION).round(), stable=True)
    mask = torch.zeros(len(values), dtype=torch.bool)
    mask[order[:count]] = True
    return mask


@register("atm")
class ATM(Rule):
    """Angular Trimmed-mean: drop the 2b updates that point away from the others, average the rest."""

    turn_free = True
    by_gram = True
    trim: Trim = 1
    """b: twice as many updates are dropped; a number, or a share of the updates."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The angular trimmed mean."""
        return atm(stack, self.trim)

    def check(self, updates_per_step: int) -> None:
        """2b < n."""
        check_trim(self.trim, updates_per_step)
