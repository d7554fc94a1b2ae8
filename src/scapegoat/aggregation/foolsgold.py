"""FoolsGold (Fung et al. 2020): clients that have always pulled the same way count less, the more alike they are."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.combining.memory import Remember, Width, WithMemory, known_direction, memory_of
from scapegoat.combining.rule import (
    Aggregate,
    AggregationContext,
    Stack,
    check_several,
    register,
)
from scapegoat.combining.stack import screened
from scapegoat.devices import host
from scapegoat.registry import added

_LARGE = 1e15
"""Sums with larger entries are compared at another scale: their squares would overflow."""


@screened()
def foolsgold(
    stack: Stack,
    confidence: float = 1.0,
    remember: int = 100,
    sketch: int | None = None,
    client_ids: Sequence[int] | None = None,
    state: MutableMapping[str, Tensor] | None = None,
) -> Aggregate:
    """sum_k a_k g_k / n, a_k being the client's rate between 0 and 1 (Algorithm 1 of the paper).

    The rate falls with the largest cosine between the sum of all updates of the client and that of another client of
    the round. `client_ids` name the updates that arrived (by default their places). The sums are in `state` as
    `direction/<id>`, one float32 vector [d] for each of the `remember` clients last seen; without a state, this round's
    updates are all there is. With `sketch`, sums are kept and compared as sketches of that width.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> foolsgold(updates).kept.tolist()  # those alike are taken for one will: it stands sybils, not a single outlier
    [False, False, False, False, True]
    """
    rule = FoolsGold(confidence=confidence, remember=remember, sketch=sketch)
    return rule.aggregate(stack, AggregationContext.of_rows(stack.ids(client_ids), state))


def rates(cosines: Tensor, confidence: float) -> Tensor:
    """Learning rates [n] from the cosines between the clients' sums [n, n]; all zero where all are the same."""
    similar = cosines.clone().fill_diagonal_(0)
    most = similar.max(1).values
    # Pardoning: an honest client that resembles a more suspect one is not punished for it.
    similar *= torch.where(most[None, :] > most[:, None], most[:, None] / most[None, :].clamp_min(1e-300), 1.0)
    rate = (1 - similar.max(1).values).clamp(0, 1)
    if float(rate.max()) == 0:
        return rate
    rate = (rate / rate.max()).clamp_max(0.99)
    return (confidence * (torch.logit(rate) + 0.5)).clamp(0, 1)


@register("foolsgold")
class FoolsGold(WithMemory):
    """Updates weighted by how little their client's history resembles another's: against many clients of one will."""

    confidence: Annotated[float, Field(gt=0, le=100)] = 1.0
    """How sharply a rate goes to 0 or 1 (the paper's kappa)."""
    remember: Remember = 100
    sketch: Width = added(None)
    """Numbers that are kept of each client's sum, for models longer than that; none: all of them."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The weighted mean; the clients' sums are in the context's state."""
        ids, memory = context.client_ids, memory_of(context, self.remember, self.sketch, stack.d)
        shown = memory.shown(stack)
        sums = {client: known_direction(memory, client, shown, self.name) for client in ids}
        for i, client in enumerate(ids):
            sums[client].add_(shown.rows[i], alpha=1.0 if shown.scale is None else float(shown.scale[i]))
        for client, total in sums.items():
            memory.put("direction", client, total)
        angles = geometry.angles(geometry.gram([_comparable(total) for total in sums.values()]))
        by_client = dict(zip(sums, rates(angles.cos(), self.confidence).tolist(), strict=True))
        rate = torch.tensor([by_client[client] for client in ids], dtype=torch.float64)
        notes = {"rate": float(rate.mean()), "remembered": memory.close_round(ids)}
        if not bool((rate > 0).any()):
            return stack.nothing(notes)
        return stack.aggregate(stack.weighted(rate / len(stack)), rate > 0, notes)

    def check(self, updates_per_step: int) -> None:
        """Of one update, there is nothing to resemble."""
        check_several(self.name, updates_per_step)


def _comparable(total: Tensor) -> Tensor:
    largest = float(host(total.abs().max())) if total.numel() else 0.0
    return total / largest if largest > _LARGE else total
