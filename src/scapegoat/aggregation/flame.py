"""FLAME (Nguyen et al. 2022): keep the majority direction, clip to the median norm, add a little noise."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from scapegoat import geometry
from scapegoat.aggregation.norm_clipping import clipped
from scapegoat.combining.clustering import IMPORTED, hdbscan
from scapegoat.combining.noise import Noise
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_several, register
from scapegoat.combining.stack import screened


@screened(by_gram=True)
def flame(stack: Stack, noise: float = 0.001, generator: torch.Generator | None = None) -> Aggregate:
    """Mean of the majority's clipped updates, plus N(0, (noise · S)²).

    The majority is the cluster that HDBSCAN finds in the cosine distances with more than half of the updates as its
    smallest size; if it finds none, everybody is kept. S is the median norm of all updates, which bounds each update
    kept.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> flame(updates, noise=0.0).kept.tolist()
    [True, True, True, True, False]
    """
    n = len(stack)
    distance = (1 - geometry.angles(stack.gram()).cos()).fill_diagonal_(0)
    labels = hdbscan(distance, stack.norms(), distances=True, min_cluster_size=n // 2 + 1, min_samples=1, single=True)
    kept = labels >= 0
    if not bool(kept.any()):
        kept = torch.ones(n, dtype=torch.bool)
    changed, bound = clipped(stack)
    total = changed.mean(kept)
    if noise > 0:
        Noise(generator).add(total, noise * bound, client=0)
    return changed.aggregate(total, kept, {"clip": bound, "sigma": noise * bound})


@register("flame")
class Flame(Rule):
    """Keep the majority direction, clip to the median norm, add noise relative to it."""

    by_gram = True
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.001
    """Noise added to the mean, per clipping norm."""

    def needs(self, updates: int, d: int) -> int:
        """The mean, and the library that clusters."""
        return 2 * d + IMPORTED

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The noisy mean of the majority's clipped updates."""
        return flame(stack, self.noise, context.generator)

    def check(self, updates_per_step: int) -> None:
        """Of one update, there is no majority."""
        check_several(self.name, updates_per_step)
