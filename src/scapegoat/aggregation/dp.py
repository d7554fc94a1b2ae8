"""Differential privacy: Gaussian noise on every update, and with clipping a guarantee that can be stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator

from scapegoat.accounting import Sampling, epsilon_of_rounds
from scapegoat.aggregation.norm_clipping import clipped
from scapegoat.combining.noise import Noise, copies
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, Transform, register
from scapegoat.combining.stack import screened
from scapegoat.errors import OptionError
from scapegoat.registry import added

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
    shared: bool = False,
    sampling: Sampling = "fixed",
) -> Aggregate:
    """Mean of g_k + N(0, sigma² I), fresh noise for every client, or with `shared` one noise for them all.

    With `clip`, g_k is first shortened to at most `clip` and sigma is noise_multiplier · clip; the notes then hold the
    (epsilon, delta) of `rounds` such rounds at this sampling rate, for a fixed number of clients per round or for
    Poisson sampling. `client_ids` name the updates that arrived.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> dp(updates, sigma=0.0).update.isclose(updates.mean(0)).all().item()
    True
    """
    rule = DP(sigma=sigma, clip=clip, noise_multiplier=noise_multiplier, delta=delta, shared=shared)
    context = AggregationContext(
        client_ids=stack.ids(client_ids),
        sample_counts=(1,) * len(stack),
        round=rounds - 1,
        generator=generator,
        sampling_rate=sampling_rate,
        sampling=sampling,
    )
    return rule.aggregate(stack, context)


@register("dp")
class DP(Transform):
    """Gaussian noise on every update; with `clip`, sigma is noise_multiplier · clip and epsilon is reported."""

    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.001
    """Standard deviation of the noise per coordinate, where `clip` is not set."""
    clip: Positive | None = None
    """Norm to which each update is clipped; with it the noise is noise_multiplier x clip."""
    noise_multiplier: Positive = 1.0
    """Noise per clipping norm; decides epsilon."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The delta for which epsilon is reported."""
    accounting: Literal["as_sampled", "poisson"] = "as_sampled"
    """Whose bound epsilon is: that of how clients are really picked, or Poisson sampling's at the same rate."""
    shared: bool = added(False)
    """Whether one noise vector is added to all updates, as the paper's authors do; it hides none from the others."""

    @model_validator(mode="after")
    def _epsilon_holds(self) -> DP:
        if self.shared and self.clip is not None:
            problem = "no epsilon holds where all updates carry the same noise: their differences are bare"
            raise OptionError("shared", f"{problem}; leave clip out, or shared")
        return self

    def canonical(self) -> dict[str, Any]:
        """As every component's; how an epsilon is accounted is no part of a rule that has none."""
        written = super().canonical()
        if self.clip is None:
            del written["accounting"]
        return written

    @property
    def rowwise(self) -> bool:
        """Whether each client gets noise of its own."""
        return not self.shared

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The rows with their noise."""
        stack, sigma, notes = self._clipped(stack, context)
        rows = stack.matrix()
        noise = Noise(context.generator)
        for row, (client, copy) in zip(rows, self._sources(context), strict=True):
            noise.add(row, sigma, client, copy)
        return stack.holding(rows), notes

    def needs(self, updates: int, d: int) -> int:
        """Alone, it holds one row at a time."""
        return 2 * d

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the noisy rows, without holding them all."""
        stack, sigma, notes = self._clipped(stack, context)
        total = stack.mean()
        noise = Noise(context.generator)
        sources = self._sources(context)
        for client, copy in dict.fromkeys(sources):
            noise.add(total, sigma if self.shared else sigma / len(stack), client, copy)
        return stack.aggregate(total, notes=notes)

    def _sources(self, context: AggregationContext) -> list[tuple[int, int]]:
        """Whose noise each row gets: its client's, one for each of the client's rows, or the same for all."""
        if self.shared:
            return [(0, 0)] * len(context.client_ids)
        return list(zip(context.client_ids, copies(context.client_ids), strict=True))

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
        rates = context.sampled or (context.sampling_rate,) * (context.round + 1)
        sampling = context.sampling if self.accounting == "as_sampled" else "poisson"
        epsilon = epsilon_of_rounds(Counter(rates), self.noise_multiplier, self.delta, sampling)
        notes = {"sigma": sigma, "clip": self.clip, "epsilon": epsilon, "delta": self.delta}
        return clipped(stack, self.clip)[0], sigma, notes
