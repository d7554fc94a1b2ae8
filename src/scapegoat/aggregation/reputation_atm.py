"""ATM with a reputation: suspicion is gathered over rounds, and the most suspect clients are left out."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.atm import smallest
from scapegoat.aggregation.memory_atm import MemoryATM
from scapegoat.aggregation.norm_clipping import clipped
from scapegoat.combining.memory import Memory, known_direction, memory_of
from scapegoat.combining.rule import Aggregate, AggregationContext, Stack, register, trim_count
from scapegoat.combining.stack import screened

LIMIT = 5.0
"""No round makes a client more suspect than so many spreads; an angle that far out counts at once."""

TIER = 1e3
"""Suspicion comes before this round's deviation: more than any two deviations, of at most `LIMIT`, can differ."""

ROUNDING = 1e-6
"""What remains of an update and is shorter than this share of the median norm is rounding, and has no direction."""

SMALLEST = 1e-30
"""A median norm below this is as good as zero: float32 cannot hold what it divides."""


@screened(by_gram=True)
def reputation_atm(
    stack: Stack,
    trim: int | float = 1,
    beta: float = 0.9,
    remember: int = 100,
    hold: float = 0.9,
    doubt: float = 2.0,
    probation: int = 10,
    uneven: float = 0.05,
    patience: int = 15,
    sketch: int | None = None,
    client_ids: Sequence[int] | None = None,
    state: MutableMapping[str, Tensor] | None = None,
) -> Aggregate:
    """Mean of the clipped updates without those of the 2b clients that are most suspect, or point away this round.

    What remains of an honest client's update when the mean of the round is taken away is mostly noise; an attacker's
    goal stays the same. A client's steadiness is the mean cosine between what remained of it in two rounds, a pair
    weighted by beta to the power of its ages: 0 for noise of any size, 1 for a client that pulls the same way in every
    round. With m <- beta m + (1 - beta) r / |r| of what remained, r, it is (|m|² - q) / ((1 - beta^t)² - q), where
    q = (1 - beta)² (1 - beta^2t) / (1 - beta²) is what m would be if no two rounds agreed.

    A client's suspicion is the average over its rounds, s <- hold s + (1 - hold) x divided by 1 - hold^t, of how far
    its steadiness is above the round's median: x in robust spreads plus `uneven`, by which honest clients differ since
    their data do, between 0 and 5. It never falls below zero, so good conduct is no credit to be spent later. Clients
    with less than `doubt` are all alike, and among them this round's mean angles decide, as in ATM, so that nobody is
    left out for long by chance; those with more go first. So does an angle 5 spreads above the median, whatever the
    past, and a newcomer: a client seen fewer than `probation` times and less than half as often as the others of the
    round are, since a new name must not clear anyone. And so does a client that returns this round to what it has been
    pulling at: the mean cosine of r with what remained in its earlier rounds, r m / (|r| (1 - beta^(t - 1))), is
    `agreement` spreads above the median. Who pauses is not steady, but agrees with itself whenever it attacks.

    Late in training an honest client whose records are hard to fit pulls steadily too. So after `patience` updates left
    out in a row the next one is judged by this round's angle alone; then the past counts again.

    The memory is a float32 vector [d] and four numbers for each of the `remember` clients last seen, in `state` as
    `direction/<id>` (m), `reputation/<id>` (s, t and the updates left out in a row) and `seen/<id>`. With `sketch`,
    what remains is taken, measured and averaged in sketches of that width.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> state: dict[str, torch.Tensor] = {}
    >>> reputation_atm(updates, trim=1, client_ids=[0, 1, 2, 3, 4], state=state).kept.tolist()
    [True, False, True, True, False]
    """
    rule = ReputationATM(
        trim=trim,
        beta=beta,
        remember=remember,
        hold=hold,
        doubt=doubt,
        probation=probation,
        uneven=uneven,
        patience=patience,
        sketch=sketch,
    )
    return rule.aggregate(stack, AggregationContext.of_rows(stack.ids(client_ids), state))


@register("reputation_atm")
class ReputationATM(MemoryATM):
    """Clip, drop those that have been pulling away steadily, then those that point away this round."""

    turn_free = True
    hold: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Weight of the past in a client's suspicion."""
    doubt: Annotated[float, Field(ge=0, le=LIMIT)] = 2.0
    """Suspicion, in spreads, below which clients are all alike."""
    agreement: Annotated[float, Field(ge=0, le=LIMIT)] = 1.0
    """Spreads from which it counts that a client pulls this round where it has been pulling before."""
    probation: Annotated[int, Field(ge=0)] = 10
    """Updates below which a client counts as new, if others have sent twice as many."""
    uneven: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Steadiness, or agreement, by which honest clients differ because their data do; added to the spread."""
    patience: Annotated[int, Field(ge=1)] = 15
    """Updates in a row that a client is left out for its past; the next one is judged by this round alone."""

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the clipped updates of those kept; the memory is in the context's state."""
        ids, memory = context.client_ids, memory_of(context, self.remember, self.sketch, stack.d)
        changed, bound = clipped(stack)
        shown = memory.shown(changed)
        past = {client: _Past.of(client, memory, shown) for client in ids}
        rows = [past[client] for client in ids]
        agreement = _deviation(_remember(shown, bound, rows, self.beta), self.uneven)
        steadiness = torch.tensor([known.steadiness(self.beta) for known in rows], dtype=torch.float64)
        for known, x in zip(rows, _deviation(steadiness, self.uneven).clamp_min(0).tolist(), strict=True):
            known.suspicion = self.hold * known.suspicion + (1 - self.hold) * x
        b = trim_count(self.trim, len(stack))
        now = _deviation(geometry.mean_angles(stack.gram()))
        kept = smallest(self._standing(now, agreement, rows), len(stack) - 2 * b)
        for known, was_kept in zip(rows, kept.tolist(), strict=True):
            known.left_out = 0 if was_kept else known.left_out + 1
        for client, known in past.items():
            known.keep(client, memory)
        notes = {"trim": b, "clip": bound, "remembered": memory.close_round(ids)}
        return changed.aggregate(changed.mean(kept), kept, notes)

    def _standing(self, now: Tensor, agreement: Tensor, past: Sequence[_Past]) -> Tensor:
        """What ranks the clients [n]: suspicion or agreement where it is reason for doubt, then this round's angle."""
        suspicion = torch.tensor([p.suspicion / (1 - self.hold**p.rounds) for p in past], dtype=torch.float64)
        suspicion = torch.where(now >= LIMIT, LIMIT, suspicion)
        rounds = torch.tensor([p.rounds for p in past], dtype=torch.float64)
        new = rounds < (rounds.quantile(0.5) / 2).clamp_max(self.probation)
        suspicion = torch.where(new, suspicion.clamp_min(self.doubt), suspicion)
        suspicion = torch.where(suspicion >= self.doubt, suspicion, 0.0)
        suspicion = suspicion.maximum(torch.where(agreement >= self.agreement, agreement, 0.0))
        enough = torch.tensor([p.left_out >= self.patience for p in past]) & (now < LIMIT)
        return torch.where(enough, 0.0, suspicion) * TIER + now


@dataclass
class _Past:
    """What is known of a client: the average direction of what remained of its updates, its suspicion, its rounds."""

    pull: Tensor
    suspicion: float
    rounds: int
    left_out: int

    @staticmethod
    def of(client: int, memory: Memory, stack: Stack) -> _Past:
        suspicion, rounds, left_out = memory.get("reputation", client, torch.zeros(3, dtype=torch.float64)).tolist()
        return _Past(known_direction(memory, client, stack, "reputation_atm"), suspicion, int(rounds), int(left_out))

    def keep(self, client: int, memory: Memory) -> None:
        memory.put("direction", client, self.pull)
        memory.put(
            "reputation", client, torch.tensor([self.suspicion, self.rounds, self.left_out], dtype=torch.float64)
        )

    def steadiness(self, beta: float) -> float:
        """The mean cosine between different rounds; 0 as long as there is but one."""
        alone = (1 - beta) ** 2 * (1 - beta ** (2 * self.rounds)) / (1 - beta**2)
        pairs = (1 - beta**self.rounds) ** 2 - alone
        square = float(geometry.squared_norms(self.pull[None])[0])
        return (square - alone) / pairs if self.rounds > 1 and pairs > 0 else 0.0


def _deviation(values: Tensor, uneven: float = 1e-6) -> Tensor:
    """How many robust spreads (1.4826 times the median absolute deviation) each value is above the median."""
    median = values.quantile(0.5)
    spread = 1.4826 * (values - median).abs().quantile(0.5)
    return ((values - median) / (spread + uneven)).clamp(-LIMIT, LIMIT)


def _remember(stack: Stack, bound: float, past: Sequence[_Past], beta: float) -> Tensor:
    """Add the direction of what remains of each row, without the mean of all, to its client's average.

    Returns its mean cosine with that of the client's earlier rounds [n]; 0 where there is none.
    """
    cosines = torch.zeros(len(past), dtype=torch.float64)
    unit = bound if bound > SMALLEST else 1.0
    mean = stack.mean().div_(unit)
    for i, client in enumerate(past):
        remains = stack.rows[i] * ((1.0 if stack.scale is None else float(stack.scale[i])) / unit) - mean
        length = float(geometry.squared_norms(remains[None])[0]) ** 0.5
        if length > ROUNDING and client.rounds:
            along = float(geometry.products(remains[None], client.pull[None])[0, 0])
            cosines[i] = along / (length * (1 - beta**client.rounds))
        client.rounds += 1
        client.pull.mul_(beta)
        if length > ROUNDING:
            client.pull.add_(remains, alpha=(1 - beta) / length)
    return cosines
