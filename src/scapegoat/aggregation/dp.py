"""Differential privacy: Gaussian noise on every update, and with clipping a guarantee that can be stated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field

from scapegoat.aggregation.accounting import epsilon_after
from scapegoat.aggregation.base import Aggregate, AggregationContext, Rule, Stack, Transform, register
from scapegoat.aggregation.noise import Noise, copies
from scapegoat.aggregation.norm_clipping import clipped
from scapegoat.aggregation.stack import screened
from scapegoat.errors import OptionError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@screened()
def dp(
    stack: Stack,
    sigma: float = 0.001,
    clip: float | None = None,
    noise_multiplier: float = 1.0,
    delta: float = 1e-5,
    client_ids: Sequence[int] | None = None,
    generator: torch.Generator | None = None,
    sampling_rate: float = 1.0,
    rounds: int = 1,
) -> Aggregate:
    """Mean of g_k + N(0, sigma² I), fresh noise for every client.

    With `clip`, g_k is first shortened to at most `clip` and sigma is noise_multiplier · clip; the notes then hold the
    (epsilon, delta) of `rounds` such rounds at this sampling rate. `client_ids` name the updates that arrived.
    """
    ids = range(len(stack.accepted)) if client_ids is None else client_ids
    rule = DP(sigma=sigma, clip=clip, noise_multiplier=noise_multiplier, delta=delta)
    context = AggregationContext(
        client_ids=tuple(ids[i] for i in stack.places),
        sample_counts=(1,) * len(stack),
        round=rounds - 1,
        generator=generator,
        sampling_rate=sampling_rate,
    )
    return rule.aggregate(stack, context)


@register("dp")
class DP(Transform):
    """Gaussian noise on every update; with `clip`, sigma is noise_multiplier · clip and epsilon is reported."""

    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.001
    clip: Positive | None = None
    noise_multiplier: Positive = 1.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5

    @property
    def rowwise(self) -> bool:
        """Each client gets noise of its own."""
        return True

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The rows with their noise."""
        stack, sigma, notes = self._clipped(stack, context)
        rows = stack.matrix()
        noise = Noise(context.generator)
        for row, client, copy in zip(rows, context.client_ids, copies(context.client_ids), strict=True):
            noise.add(row, sigma, client, copy)
        return stack.holding(rows), notes

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the noisy rows, without holding them all."""
        stack, sigma, notes = self._clipped(stack, context)
        total = stack.mean()
        noise = Noise(context.generator)
        for client, copy in zip(context.client_ids, copies(context.client_ids), strict=True):
            noise.add(total, sigma / len(stack), client, copy)
        return stack.aggregate(total, notes=notes)

    def follows(self, stages: Sequence[Rule]) -> None:
        """An epsilon holds only if no stage before lets one client's data change what another's update becomes."""
        for stage in stages:
            if self.clip is not None and not (isinstance(stage, Transform) and stage.rowwise):
                problem = f"no epsilon would hold after {stage.name}, which mixes clients"
                raise OptionError("clip", f"{problem}; put dp first, or leave clip out")

    def _clipped(self, stack: Stack, context: AggregationContext) -> tuple[Stack, float, dict[str, float]]:
        if self.clip is None:
            return stack, self.sigma, {"sigma": self.sigma}
        sigma = self.noise_multiplier * self.clip
        epsilon = epsilon_after(context.round + 1, self.noise_multiplier, context.sampling_rate, self.delta)
        notes = {"sigma": sigma, "clip": self.clip, "epsilon": epsilon, "delta": self.delta}
        return clipped(stack, self.clip)[0], sigma, notes
