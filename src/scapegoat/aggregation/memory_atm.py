"""ATM with a memory: clients are ranked by where they have been heading, not by one noisy round."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.atm import ATM, smallest
from scapegoat.aggregation.base import Aggregate, AggregationContext, Stack, register, trim_count
from scapegoat.aggregation.norm_clipping import clipped
from scapegoat.aggregation.stack import screened
from scapegoat.errors import InputError


@screened(by_gram=True)
def memory_atm(
    stack: Stack,
    trim: int | float = 1,
    beta: float = 0.9,
    client_ids: Sequence[int] | None = None,
    state: MutableMapping[str, Tensor] | None = None,
) -> Aggregate:
    """Mean of the clipped updates of the clients whose running directions agree best.

    Updates are clipped to the median norm. Client c's running direction is m_c <- beta m_c + (1 - beta) g_c, divided by
    1 - beta^t after its t-th update. The 2b clients whose directions have the largest mean angle to those of the other
    clients of the round are dropped. `client_ids` name the updates that arrived (by default their places).

    The memory is one float32 vector [d] and a count for each client ever seen, in `state` as `direction/<id>` and
    `count/<id>`; malformed updates never enter it. Without `state` there is no past, and this is `clipped_atm`.
    """
    state = {} if state is None else state
    changed, bound = clipped(stack)
    theta = running_angles(changed, names(stack, client_ids), state, beta)
    b = trim_count(trim, len(stack))
    kept = smallest(theta, len(stack) - 2 * b)
    notes = {"trim": b, "clip": bound, "remembered": remembered(state)}
    return changed.aggregate(changed.mean(kept), kept, notes)


def names(stack: Stack, client_ids: Sequence[int] | None) -> list[int]:
    """The clients behind the rows; `client_ids` name all that arrived (by default their places)."""
    arrived = range(len(stack.accepted)) if client_ids is None else client_ids
    return [arrived[i] for i in stack.places]


def running_angles(stack: Stack, ids: Sequence[int], state: MutableMapping[str, Tensor], beta: float) -> Tensor:
    """Remember the rows, then give the mean angle [n] of each client's running direction to the other clients'."""
    for i, client in enumerate(ids):
        _remember(state, client, stack, i, beta)
    # The correction of the bias changes lengths, never angles, but the stored vector is the plain average: divide here.
    counts = [int(state[f"count/{c}"]) for c in ids]
    correction = torch.tensor([1 / (1 - beta**t) for t in counts], dtype=torch.float64)
    products = geometry.gram([state[f"direction/{c}"] for c in ids]) * correction[:, None] * correction[None, :]
    return _mean_angles_to_others(geometry.angles(products), ids)


def remembered(state: MutableMapping[str, Tensor]) -> int:
    """How many clients the state holds."""
    return sum(key.startswith("count/") for key in state)


def _remember(state: MutableMapping[str, Tensor], client: int, stack: Stack, i: int, beta: float) -> None:
    """Add row i to the client's running direction, in place."""
    share = (1 - beta) * (1.0 if stack.scale is None else float(stack.scale[i]))
    direction = state.get(f"direction/{client}")
    if direction is None:
        state[f"direction/{client}"] = stack.rows[i] * share
        state[f"count/{client}"] = torch.ones((), dtype=torch.int64)
        return
    if direction.shape != (stack.d,):
        raise InputError(
            f"memory_atm remembers client {client} with {direction.numel()} parameters, the updates have {stack.d}; "
            f"start with an empty state"
        )
    direction.mul_(beta).add_(stack.rows[i], alpha=share)
    state[f"count/{client}"] += 1


def _mean_angles_to_others(theta: Tensor, ids: Sequence[int]) -> Tensor:
    """Mean angle of each row to the rows of other clients: nobody gains by agreeing with itself."""
    names = torch.tensor([ids.index(c) for c in ids])
    other = names[:, None] != names[None, :]
    return (theta * other).sum(1) / other.sum(1).clamp_min(1)


def arrived(stack: Stack, context: AggregationContext) -> list[int]:
    """Ids for all that arrived, as `names` takes them; the context knows those of the well-formed rows."""
    ids = [-1] * len(stack.accepted)
    for place, client in zip(stack.places, context.client_ids, strict=True):
        ids[place] = client
    return ids


@register("memory_atm")
class MemoryATM(ATM):
    """Clip, rank clients by the angles between their running directions, average the clipped updates of those kept."""

    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the clipped updates of those kept; the memory is in the context's state."""
        return memory_atm(stack, self.trim, self.beta, arrived(stack, context), context.state)
