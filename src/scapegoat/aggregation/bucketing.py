"""Bucketing (Karimireddy et al. 2022): a rule sees the means of small random groups of clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field

from scapegoat.combining.noise import copies
from scapegoat.combining.rule import Aggregate, AggregationContext, Stack, Transform, register
from scapegoat.combining.stack import screened
from scapegoat.errors import OptionError
from scapegoat.randomness import derive


@screened(plain=True)
def bucketing(
    stack: Stack,
    size: int = 2,
    client_ids: Sequence[int] | None = None,
    generator: torch.Generator | None = None,
) -> Aggregate:
    """Mean of the means of random buckets of `size` updates (the last bucket may have fewer).

    `client_ids` name the updates that arrived (by default their places).

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> bucketing(updates, size=5).update.isclose(updates.mean(0)).all().item()
    True
    """
    ids = stack.ids(client_ids)
    context = AggregationContext(ids, (1,) * len(ids), generator=generator)
    return Bucketing(size=size).aggregate(stack, context)


def buckets(client_ids: tuple[int, ...], size: int, source: torch.Generator | None) -> list[list[int]]:
    """Random groups of rows, from one draw of the round's generator; the order of the rows does not matter."""
    seed = int(torch.randint(2**62, (1,), generator=source))
    keys = [derive(seed, "bucket", *row) for row in zip(client_ids, copies(client_ids), strict=True)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [order[start : start + size] for start in range(0, len(order), size)]


@register("bucketing")
class Bucketing(Transform):
    """Random buckets of clients, each replaced by its mean: honest rows differ less, hostile ones are fewer in number.

    The rule that follows sees ceil(n/size) rows, of which as many can be hostile as there are hostile clients.
    """

    plain = True
    shift_free = True
    size: Annotated[int, Field(ge=1)] = 2
    """Clients per bucket."""

    @property
    def merges(self) -> bool:
        """A bucket is of several clients, unless it is of one."""
        return self.size > 1

    def rows_left(self, updates_per_step: int) -> int:
        """One per bucket."""
        return -(-updates_per_step // self.size)

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The means of the buckets."""
        groups = buckets(context.client_ids, self.size, context.generator)
        return stack.merged(groups), {"buckets": len(groups)}

    def check(self, updates_per_step: int) -> None:
        """Two buckets."""
        if self.rows_left(updates_per_step) < 2:
            problem = f"{self.size} makes one bucket of {updates_per_step} updates per step"
            raise OptionError("size", f"{problem}: it must be below the number of updates, which must be at least 2")
