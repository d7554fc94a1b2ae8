"""ATM with a memory: clients are ranked by where they have been heading, not by one noisy round."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.atm import ATM, smallest
from scapegoat.aggregation.norm_clipping import clipped
from scapegoat.combining.memory import Memory, Remember, Width, WithMemory, known_direction, memory_of
from scapegoat.combining.rule import (
    Aggregate,
    AggregationContext,
    Stack,
    register,
    trim_count,
)
from scapegoat.combining.stack import screened
from scapegoat.registry import added


@screened(by_gram=True)
def memory_atm(
    stack: Stack,
    trim: int | float = 1,
    beta: float = 0.9,
    remember: int = 100,
    sketch: int | None = None,
    client_ids: Sequence[int] | None = None,
    state: MutableMapping[str, Tensor] | None = None,
) -> Aggregate:
    """Mean of the clipped updates of the clients whose running directions agree best.

    Updates are clipped to the median norm. Client c's running direction is m_c <- beta m_c + (1 - beta) g_c, divided by
    1 - beta^t after its t-th update. The 2b clients whose directions have the largest mean angle to those of the other
    clients of the round are dropped. `client_ids` name the updates that arrived (by default their places).

    The memory is one float32 vector [d] and two numbers for each of the `remember` clients last seen, in `state` as
    `direction/<id>`, `count/<id>` and `seen/<id>`; malformed updates never enter it. Without `state` there is no past,
    and this is `clipped_atm`. With `sketch`, directions are kept as sketches of that width, whatever the model's size,
    and angles between them are compared (`combining.memory.SketchedMemory`).

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> state: dict[str, torch.Tensor] = {}
    >>> memory_atm(updates, trim=1, client_ids=[0, 1, 2, 3, 4], state=state).kept.tolist()
    [True, False, True, True, False]
    """
    rule = MemoryATM(trim=trim, beta=beta, remember=remember, sketch=sketch)
    return rule.aggregate(stack, AggregationContext.of_rows(stack.ids(client_ids), state))


@register("memory_atm")
class MemoryATM(WithMemory, ATM):
    """Clip, rank clients by the angles between their running directions, average the clipped updates of those kept."""

    turn_free = True
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Weight of the past in a client's running direction."""
    remember: Remember = 100
    sketch: Width = added(None)
    """Numbers that are kept of each client's direction, for models longer than that; none: all of them."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the clipped updates of those kept; the memory is in the context's state."""
        ids, memory = context.client_ids, memory_of(context, self.remember, self.sketch, stack.d)
        changed, bound = clipped(stack)
        theta = _running_angles(memory.shown(changed), ids, memory, self.beta)
        b = trim_count(self.trim, len(stack))
        kept = smallest(theta, len(stack) - 2 * b)
        notes = {"trim": b, "clip": bound, "remembered": memory.close_round(ids)}
        return changed.aggregate(changed.mean(kept), kept, notes)


def _running_angles(stack: Stack, ids: Sequence[int], memory: Memory, beta: float) -> Tensor:
    """Remember the rows, then give the mean angle [n] of each client's running direction to the other clients'."""
    directions = {client: known_direction(memory, client, stack, "memory_atm") for client in ids}
    counts = {client: int(memory.get("count", client, torch.zeros((), dtype=torch.int64))) for client in ids}
    for i, client in enumerate(ids):
        share = (1 - beta) * (1.0 if stack.scale is None else float(stack.scale[i]))
        directions[client].mul_(beta).add_(stack.rows[i], alpha=share)
        counts[client] += 1
    for client in directions:
        memory.put("direction", client, directions[client])
        memory.put("count", client, torch.tensor(counts[client], dtype=torch.int64))
    # The correction of the bias changes lengths, never angles, but the stored vector is the plain average: divide here.
    correction = torch.tensor([1 / (1 - beta ** counts[c]) for c in ids], dtype=torch.float64)
    products = geometry.gram([directions[c] for c in ids]) * correction[:, None] * correction[None, :]
    return _mean_angles_to_others(geometry.angles(products), ids)


def _mean_angles_to_others(theta: Tensor, ids: Sequence[int]) -> Tensor:
    """Mean angle of each row to the rows of other clients: nobody gains by agreeing with itself."""
    names = torch.tensor([ids.index(c) for c in ids])
    other = names[:, None] != names[None, :]
    return (theta * other).sum(1) / other.sum(1).clamp_min(1)
