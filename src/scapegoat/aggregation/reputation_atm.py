"""ATM with a reputation: suspicion is gathered over rounds, and the most suspect clients are left out."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.atm import smallest
from scapegoat.aggregation.base import Aggregate, AggregationContext, Stack, register, trim_count
from scapegoat.aggregation.memory_atm import MemoryATM, arrived, names, remembered, running_angles
from scapegoat.aggregation.norm_clipping import clipped
from scapegoat.aggregation.stack import screened

LIMIT = 5.0
"""No single round makes a client more suspect than so many spreads."""


@screened(by_gram=True)
def reputation_atm(
    stack: Stack,
    trim: int | float = 1,
    beta: float = 0.9,
    hold: float = 0.98,
    client_ids: Sequence[int] | None = None,
    state: MutableMapping[str, Tensor] | None = None,
) -> Aggregate:
    """Mean of the clipped updates of the clients that have been least suspect so far.

    A client's suspicion in a round is the larger of two deviations, each in robust spreads from the round's median: the
    mean angle of its update to the other updates (as in ATM), and the mean angle of its running direction to the other
    clients' (as in `memory_atm`). One of them catches what the other does not: gradient ascent points away at once but
    leaves no steady direction, a hidden attack looks harmless in every round but keeps its direction. The average over
    the client's rounds, s <- hold s + (1 - hold) suspicion, divided by 1 - hold^t, ranks the clients; the 2b largest
    are dropped.

    The memory is `memory_atm`'s, and two numbers a client in `state` as `suspicion/<id>`.
    """
    state = {} if state is None else state
    ids = names(stack, client_ids)
    changed, bound = clipped(stack)
    now = geometry.mean_angles(stack.gram())
    steady = running_angles(changed, ids, state, beta)
    suspicion = torch.maximum(_deviation(now), _deviation(steady))
    ranks = torch.tensor(
        [_gather(state, c, float(v), hold) for c, v in zip(ids, suspicion, strict=True)], dtype=torch.float64
    )
    b = trim_count(trim, len(stack))
    kept = smallest(ranks, len(stack) - 2 * b)
    return changed.aggregate(changed.mean(kept), kept, {"trim": b, "clip": bound, "remembered": remembered(state)})


def _deviation(values: Tensor) -> Tensor:
    """How many robust spreads (1.4826 times the median absolute deviation) each value is above the median."""
    median = values.quantile(0.5)
    spread = 1.4826 * (values - median).abs().quantile(0.5)
    return ((values - median) / (spread + 1e-6)).clamp(-LIMIT, LIMIT)


def _gather(state: MutableMapping[str, Tensor], client: int, suspicion: float, hold: float) -> float:
    """Add a round's suspicion to the client's, and give its average so far."""
    key = f"suspicion/{client}"
    total, rounds = state[key].tolist() if key in state else (0.0, 0.0)
    total, rounds = hold * total + (1 - hold) * suspicion, rounds + 1
    state[key] = torch.tensor([total, rounds], dtype=torch.float64)
    return float(total / (1 - hold**rounds))


@register("reputation_atm")
class ReputationATM(MemoryATM):
    """Clip, gather each client's suspicion (this round's angles or its running direction's), drop the most suspect."""

    hold: Annotated[float, Field(ge=0, lt=1)] = 0.98

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the clipped updates of those kept; the memory is in the context's state."""
        ids = arrived(stack, context)
        return reputation_atm(stack, self.trim, self.beta, self.hold, ids, context.state)
