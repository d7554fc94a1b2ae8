"""ATM on updates that were first clipped to the median norm."""

from __future__ import annotations

from scapegoat.aggregation.atm import ATM, atm
from scapegoat.aggregation.norm_clipping import clipped
from scapegoat.combining.rule import Aggregate, AggregationContext, Stack, register
from scapegoat.combining.stack import screened


@screened(by_gram=True)
def clipped_atm(stack: Stack, trim: int | float = 1) -> Aggregate:
    """ATM of g_k · min(1, S/|g_k|), S the median norm: the angles stay, but no update outweighs the rest.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> clipped_atm(updates, trim=1).kept.tolist()
    [True, False, True, True, False]
    """
    changed, bound = clipped(stack)
    answer = atm(changed, trim)
    answer.notes["clip"] = bound
    return answer


@register("clipped_atm")
class ClippedATM(ATM):
    """Clip every update to the median norm, then Angular Trimmed-mean."""

    turn_free = True

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The angular trimmed mean of the clipped updates."""
        return clipped_atm(stack, self.trim)
