"""Client momentum (Karimireddy et al. 2021): a rule sees each client's running mean, without a batch's noise."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.combining.memory import Memory, Remember, WithMemory, known_direction
from scapegoat.combining.rule import Aggregate, AggregationContext, Stack, Transform, register
from scapegoat.combining.stack import screened


@screened()
def client_momentum(
    stack: Stack,
    beta: float = 0.9,
    remember: int = 100,
    client_ids: Sequence[int] | None = None,
    state: MutableMapping[str, Tensor] | None = None,
) -> Aggregate:
    """Mean of the clients' running means, m <- beta m + (1 - beta) g, divided by 1 - beta^t after the t-th update.

    `client_ids` name the updates that arrived (by default their places). The memory is one float32 vector [d] and two
    numbers for each of the `remember` clients last seen, in `state` as `momentum/<id>`, `updates/<id>` and `seen/<id>`.

    Examples
    --------
    >>> import torch
    >>> state: dict[str, torch.Tensor] = {}
    >>> for updates in ([[1.0], [3.0]], [[1.0], [3.0]]):
    ...     mean = client_momentum(torch.tensor(updates), client_ids=[0, 1], state=state).update
    >>> mean.isclose(torch.tensor([2.0])).item()
    True
    """
    rule = ClientMomentum(beta=beta, remember=remember)
    return rule.aggregate(stack, AggregationContext.of_rows(stack.ids(client_ids), state))


@register("client_momentum")
class ClientMomentum(WithMemory, Transform):
    """Every update becomes the running mean of its client's: what honest clients differ by in one batch averages out.

    In the paper clients send their momentum; here the server keeps it, so that no client need be asked or trusted to.
    """

    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Weight of the past in a client's running mean."""
    remember: Remember = 100

    @property
    def rowwise(self) -> bool:
        """A client's running mean is of its own updates alone."""
        return True

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The running means, this round's updates included; several updates of one client all become the last."""
        ids, memory = context.client_ids, Memory(context.state, self.remember)
        means = {client: known_direction(memory, client, stack, self.name, "momentum") for client in ids}
        counts = {client: int(memory.get("updates", client, torch.zeros((), dtype=torch.int64))) for client in ids}
        for i, client in enumerate(ids):
            share = (1 - self.beta) * (1.0 if stack.scale is None else float(stack.scale[i]))
            means[client].mul_(self.beta).add_(stack.rows[i], alpha=share)
            counts[client] += 1
        for client in means:
            memory.put("momentum", client, means[client])
            memory.put("updates", client, torch.tensor(counts[client], dtype=torch.int64))
        remembered = memory.close_round(ids)
        rows = torch.stack([means[client] / (1 - self.beta ** counts[client]) for client in ids])
        return stack.holding(rows), {"remembered": remembered}
