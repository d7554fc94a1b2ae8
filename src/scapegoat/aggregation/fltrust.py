"""FLTrust (Cao et al. 2021): updates count as far as they agree with the server's own."""

from __future__ import annotations

import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, register
from scapegoat.combining.stack import LARGEST_SQUARE, screened
from scapegoat.errors import InputError

SHORTEST = 1e-18
"""A shorter update has no direction that could be stretched to the root update's length in float32."""


@screened()
def fltrust(stack: Stack, root: Tensor) -> Aggregate:
    """sum_k TS_k (|g_0|/|g_k|) g_k / sum_k TS_k with trust TS_k = max(0, cos(g_k, g_0)), g_0 the server's own update.

    `kept` are the updates with trust. If nobody has any, or if the server's own update is not finite, the round
    changes nothing.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> fltrust(updates, root=torch.tensor([1.0, 1.0])).kept.tolist()
    [True, True, True, True, False]
    """
    if root.shape != (stack.d,):
        raise InputError(f"the server's root update has shape {tuple(root.shape)}; ({stack.d},) is expected")
    root = root.detach().to(torch.float32)
    squared = float(geometry.squared_norms([root])[0])
    if not squared <= LARGEST_SQUARE:
        return stack.nothing({"root_malformed": 1.0})
    length, lengths = squared**0.5, stack.norms()
    usable = lengths > SHORTEST
    dots = geometry.products(stack.rows, [root])[:, 0] * (1.0 if stack.scale is None else stack.scale)
    trust = torch.where(usable, dots / (lengths.clamp_min(SHORTEST) * max(length, SHORTEST)), 0.0).clamp(0, 1)
    total = float(trust.sum())
    if total == 0:
        return stack.nothing({"trust": 0.0})
    weights = torch.where(usable, trust / total * length / lengths.clamp_min(SHORTEST), 0.0)
    return stack.aggregate(stack.weighted(weights), trust > 0, {"trust": total / len(stack)})


@register("fltrust")
class FLTrust(Rule):
    """Updates weighted by their cosine with the server's own update, all brought to its length."""

    needs_server_data = True
    asks_for = "root_update"

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The trusted mean."""
        if context.root_update is None:
            raise InputError("fltrust needs root data of the server's own: context.root_update is missing")
        return fltrust(stack, context.root_update())
