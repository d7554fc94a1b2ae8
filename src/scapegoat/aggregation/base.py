"""What every aggregation rule shares: its inputs, its answer, and the screening of malformed updates."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from scapegoat.registry import Component, Registry


@dataclass(frozen=True)
class Aggregate:
    """What a rule did with the n updates of a round.

    `update` [d] is the descent direction for the server. `kept` [n] says whose update entered it, `rejected` [n] whose
    was malformed (wrong shape or type, NaN, Inf, or too large to square) and never looked at. `notes` are figures that
    the rule wants on record (a clipping norm, an epsilon). With no row left, `update` is zero and `kept` all False.
    """

    update: Tensor
    kept: Tensor
    rejected: Tensor
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """How the model fares on the server's own validation data after a candidate update."""

    loss: float
    error_rate: float


@dataclass(frozen=True)
class AggregationContext:
    """What the server knows beside the updates. Never who is malicious.

    `state` belongs to the rule: tensors that it keeps from round to round, saved with the checkpoint.
    `score` tries a candidate update on the server's validation data; `root_update` is the server's own update on its
    root data. Both are None where the server has no such data. `layout` names the slices of the flat vector, in order:
    (parameter name, shape). `output_probe` maps an update to the mean class probabilities that the model, after it,
    gives to a batch of noise made from the seed (DeepSight's division differences).
    """

    client_ids: tuple[int, ...]
    sample_counts: tuple[int, ...]
    round: int = 0
    generator: torch.Generator | None = None
    score: Callable[[Tensor], Score] | None = None
    root_update: Callable[[], Tensor] | None = None
    output_probe: Callable[[Tensor, int], Tensor] | None = None
    layout: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    state: MutableMapping[str, Tensor] = field(default_factory=dict)

    def rows(self, keep: Sequence[int]) -> AggregationContext:
        """The same context for a subset of the rows."""
        return replace(
            self,
            client_ids=tuple(self.client_ids[i] for i in keep),
            sample_counts=tuple(self.sample_counts[i] for i in keep),
        )


class Rule(Component):
    """A server's aggregation rule.

    `rule(updates)` or `rule(updates, context)`, where updates are stacked [n, d] or a list of vectors as they arrived.
    """

    def __call__(self, updates: Tensor | Sequence[Tensor], context: AggregationContext | None = None) -> Aggregate:
        """Aggregate the updates of one round."""
        raise NotImplementedError

    def check(self, updates_per_step: int) -> None:
        """Raise OptionError if the rule cannot work with so many updates a step."""


class Transform(Rule):
    """A rule that changes updates before another rule aggregates them; alone, it ends in the mean."""

    def transform(self, updates: Tensor, context: AggregationContext) -> tuple[Tensor, dict[str, float]]:
        """The changed updates [n, d], and notes."""
        raise NotImplementedError


registry: Registry[Rule] = Registry("defense", "scapegoat.aggregation")
register = registry.register
get = registry.get
