"""Fang et al. 2020: reject the updates that hurt the server's own validation data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Score, Stack, register
from scapegoat.combining.stack import screened
from scapegoat.errors import InputError, OptionError

Method = Literal["err", "lfr", "both"]


@screened()
def fang(stack: Stack, score: Callable[[Tensor], Score], malicious: int = 1, method: Method = "both") -> Aggregate:
    """Mean of the updates left after error-rate rejection (ERR), loss rejection (LFR), or both.

    The impact of update i is the validation error (or loss) of the mean with it, less that of the mean without it; each
    method drops the f updates with the largest impact, and an update must survive every method used. The first term is
    the same for all i, so the mean without i alone decides. Ties go by row order, earlier rows stay; a score that is
    not a number counts as infinite. `score` must look at nothing but the server's own validation data, and must not
    hold on to the vector that it is given.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> fang(updates, score=lambda g: Score(loss=float(g.norm()), error_rate=0.0), malicious=1).kept.tolist()
    [True, True, True, True, False]
    """
    n = len(stack)
    f = min(malicious, n - 1)
    candidate = torch.empty(stack.d, device=stack.device)
    scores = [score(stack.mean(_without(n, i), out=candidate)) for i in range(n)] if n > 1 else []
    kept = torch.ones(n, dtype=torch.bool)
    for used, values in (("err", [s.error_rate for s in scores]), ("lfr", [s.loss for s in scores])):
        if method in (used, "both") and f:
            kept[_largest_impacts(values, f)] = False
    if not bool(kept.any()):
        return stack.nothing({"malicious": f})
    return stack.aggregate(stack.mean(kept), kept, {"malicious": f})


def _without(n: int, i: int) -> Tensor:
    others = torch.ones(n, dtype=torch.bool)
    others[i] = False
    return others


def _largest_impacts(values_without: list[float], count: int) -> list[int]:
    """Rows whose removal leaves the lowest values; of equal ones, the later rows."""
    finite = [v if v == v else math.inf for v in values_without]
    return sorted(range(len(finite)), key=lambda i: (finite[i], -i))[:count]


@register("fang")
class Fang(Rule):
    """Reject the f updates that raise the validation error most (ERR), the loss most (LFR), or either (both)."""

    needs_server_data = True
    asks_for = "score"
    malicious: Annotated[int, Field(ge=1)] = 1
    """Updates that each of the two tests drops."""
    method: Method = "both"
    """Which tests an update must pass: the error rate's, the loss's, or both."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of those that survive."""
        if context.score is None:
            raise InputError("fang needs validation data of the server's own: context.score is missing")
        return fang(stack, context.score, self.malicious, self.method)

    def check(self, updates_per_step: int) -> None:
        """Somebody must survive."""
        most = self.malicious * (2 if self.method == "both" else 1)
        if most >= updates_per_step:
            raise OptionError(
                "malicious",
                f"{self.malicious} is too many for {updates_per_step} updates per step: {self.method} may drop {most}; "
                f"fewer than {updates_per_step} is expected",
            )
