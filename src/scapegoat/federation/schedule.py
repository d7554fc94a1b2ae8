"""When updates arrive: everybody in step, or stale and as they come."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scapegoat.randomness import numpy_generator
from scapegoat.registry import Component, Registry


class Schedule(Component):
    """`delays` says from how many rounds ago each picked client's model is."""

    @property
    def memory(self) -> int:
        """How many past global models are needed beside the present one."""
        return 0

    def delays(self, seed: int, round_: int, clients: list[int]) -> list[int]:
        """Rounds of staleness, one per client; never more rounds than there have been."""
        return [0] * len(clients)

    def step_size(self, picked: int) -> int:
        """Updates that the server waits for before it steps."""
        return picked


registry: Registry[Schedule] = Registry("schedule", Schedule, "scapegoat.federation")


@registry.register("sync")
class Synchronous(Schedule):
    """The server waits for every picked client; all start from the present model."""


@registry.register("async")
class Asynchronous(Schedule):
    """Each picked client starts from the global model of tau rounds ago, tau uniform in 0..tau_max.

    With `buffer: K` the server steps whenever K updates have arrived (the stalest come last; what is left over waits
    for the next round). K = 1 is the paper's wording; rules that need several updates refuse it. K may exceed what one
    round brings: updates then gather over several rounds, as in FedBuff (Nguyen et al., 2022). It must not exceed what
    all rounds bring, or the server would never step.
    """

    tau_max: Annotated[int, Field(ge=0)] = 5
    """Rounds that a client's model may be old."""
    buffer: Annotated[int, Field(ge=1)] | None = None
    """Updates that the server waits for before it steps; none: all of a round."""

    @property
    def memory(self) -> int:
        """tau_max models."""
        return self.tau_max

    def delays(self, seed: int, round_: int, clients: list[int]) -> list[int]:
        """Each client's own draw, cut at the first round."""
        draws = [int(numpy_generator(seed, "delay", round_, c).integers(0, self.tau_max + 1)) for c in clients]
        return [min(tau, round_) for tau in draws]

    def step_size(self, picked: int) -> int:
        """The buffer, or all picked clients."""
        return self.buffer or picked
