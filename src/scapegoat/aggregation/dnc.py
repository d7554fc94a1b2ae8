"""Divide and conquer (Shejwalkar & Houmansadr 2021): updates that stand out along the main direction are left out."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.aggregation.multi_krum import Malicious
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_malicious, register
from scapegoat.combining.stack import screened
from scapegoat.devices import exact, host


@screened(plain=True)
def dnc(
    stack: Stack,
    malicious: int = 1,
    filtering: float = 1.0,
    coordinates: int = 10_000,
    iterations: int = 1,
    generator: torch.Generator | None = None,
) -> Aggregate:
    """Mean of the updates that no iteration leaves out (Algorithm 2 of the paper).

    An iteration looks at random `coordinates`: an update's score is its squared projection, seen from the mean, on the
    direction in which the updates vary most; the ceil(filtering · f) highest scores are left out, but never half of the
    updates. If iterations leave out everybody, those left out least often stay.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> dnc(updates, malicious=1, generator=torch.Generator().manual_seed(0)).kept.tolist()
    [True, True, True, True, False]
    """
    n = len(stack)
    drop = min(math.ceil(filtering * malicious - 1e-9), (n - 1) // 2)
    dropped = torch.zeros(n, dtype=torch.int64)
    for _ in range(iterations):
        # In order, so that the rows are read from front to back.
        chosen = torch.randperm(stack.d, generator=generator)[:coordinates].sort().values
        dropped[outlier_scores(stack, chosen).argsort(stable=True)[n - drop :]] += 1
    kept = dropped == dropped.min()
    return stack.aggregate(stack.mean(kept), kept, {"left_out": n - int(kept.sum())})


def outlier_scores(stack: Stack, chosen: Tensor) -> Tensor:
    """Squared projections [n] of the centred rows, at the chosen coordinates, on their first singular direction."""
    chosen = chosen.to(stack.device)
    part = torch.stack([row[chosen] for row in stack.rows]).to(exact(stack.device))
    if stack.scale is not None:
        part *= stack.scale.to(part)[:, None]
    part -= part.mean(0)
    # The first left singular vector u of n rows, from an [n, n] matrix: the projections are u times the singular value.
    values, vectors = torch.linalg.eigh(host(part @ part.T).double())
    scores: Tensor = values[-1].clamp_min(0) * vectors[:, -1].square()
    return scores


@register("dnc")
class DnC(Rule):
    """Leave out the updates that stand out most along the direction in which they vary most."""

    plain = True
    shift_free = True
    malicious: Malicious = 1
    """f, the hostile updates that it must stand."""
    filtering: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Updates left out per iteration, in multiples of f."""
    coordinates: Annotated[int, Field(ge=1)] = 10_000
    """Random coordinates that an iteration looks at; all of them in a smaller model."""
    iterations: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often coordinates are drawn; an update stays that was never left out."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of those that stay."""
        generator = context.generator
        return dnc(stack, self.malicious, self.filtering, self.coordinates, self.iterations, generator)

    def check(self, updates_per_step: int) -> None:
        """Less than half may be left out, and there must be something to compare."""
        drop = math.ceil(self.filtering * self.malicious - 1e-9)
        check_malicious(self.malicious, updates_per_step, max(2, 2 * drop + 1), f"dnc (n > 2 x {drop} left out)")
