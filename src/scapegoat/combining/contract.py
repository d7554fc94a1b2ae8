"""What an aggregation rule is given beside the updates, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Aggregate:
    """What a rule did with the n updates of a round.

    `update` [d] is the descent direction for the server. `kept` [n] says whose update entered it, `rejected` [n] whose
    was malformed (wrong shape or type, NaN, Inf, or too large to square) and never looked at. `notes` are figures that
    the rule wants on record (a clipping norm, an epsilon). With no row left, `update` is zero and `kept` all False.

    Examples
    --------
    >>> from scapegoat import aggregation
    >>> answer = aggregation.krum(torch.tensor([[1.0, 1.0], [1.0, 1.1], [1.1, 1.0], [-9.0, 9.0], [float("nan"), 1.0]]))
    >>> answer.kept.tolist(), answer.rejected.tolist()
    ([True, False, False, False, False], [False, False, False, False, True])
    """

    update: Tensor
    kept: Tensor
    rejected: Tensor
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """How well the model does on the server's own validation data after a candidate update.

    `loss` is the mean loss, `error_rate` the share of the records that are classified wrongly.

    Examples
    --------
    >>> Score(loss=0.7, error_rate=0.25).error_rate
    0.25
    """

    loss: float
    error_rate: float


@dataclass(frozen=True)
class AggregationContext:
    """What the server knows beside the updates. Never who is malicious.

    `client_ids` and `sample_counts` say whose update each is and on how many records it was made, `round` which round
    it is (from 0), and all of the rule's randomness comes from `generator`.
    `state` belongs to the rule: tensors that it keeps from round to round, saved with the checkpoint.
    `score` tries a candidate update on the server's validation data; `root_update` is the server's own update on its
    root data. Both are None where the server has no such data. `layout` names the slices of the flat vector, in order:
    (parameter name, shape). `output_probe` maps an update and a seed to the class probabilities [samples, classes]
    that the model, after that update alone, gives to a batch of noise made from the seed (DeepSight's division
    differences).
    `sampling_rate` is the share of the clients picked per round, `rounds` how many rounds are planned (0: not known).
    `sampled` holds the share of every round so far where a server does not pick the same share each time, `sampling`
    says whether a fixed number of clients is picked or each with the same probability (Poisson sampling).
    `parameters` gives the global ones [d] of the round, where the server tells them; they are not to be written to.

    Examples
    --------
    >>> from scapegoat import aggregation
    >>> context = AggregationContext(client_ids=(7, 8, 9), sample_counts=(10, 10, 80))
    >>> aggregation.get("fedavg", weighted=True)(torch.tensor([[0.0], [0.0], [1.0]]), context).update
    tensor([0.8000])
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
    sampling_rate: float = 1.0
    rounds: int = 0
    sampled: tuple[float, ...] = ()
    sampling: Literal["fixed", "poisson"] = "fixed"
    parameters: Callable[[], Tensor] | None = None

    @property
    def dimension(self) -> int | None:
        """Length of an update, where the layout says so."""
        return None if self.layout is None else sum(math.prod(shape) for _, shape in self.layout)

    @classmethod
    def anonymous(cls, n: int) -> AggregationContext:
        """A context for n updates of which nothing else is known."""
        return cls.of_rows(range(n))

    @classmethod
    def of_rows(cls, client_ids: Sequence[int], state: MutableMapping[str, Tensor] | None = None) -> AggregationContext:
        """A context for the rows of these clients, with the rule's state (an empty one by default)."""
        return cls(tuple(client_ids), (1,) * len(client_ids), state={} if state is None else state)

    def rows(self, keep: Sequence[int]) -> AggregationContext:
        """The same context for a subset of the rows."""
        return replace(
            self,
            client_ids=tuple(self.client_ids[i] for i in keep),
            sample_counts=tuple(self.sample_counts[i] for i in keep),
        )
