"""Aiming at any aggregation rule through a copy of it that the attacker runs itself.

The family of updates is that of Shejwalkar and Houmansadr (2021): the peers' mean plus a multiple of the wanted
direction. How large the multiple may be before the rule answers, nobody needs to derive: the attacker runs the rule on
the peers it knows and its own candidate, and keeps the candidate that moves the rule's output farthest along the
direction. The copy is a black box, so any rule that can be named can be aimed at, pipelines included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation import Aggregate, AggregationContext, Rule, Score
from scapegoat.crafting.contract import AttackerView
from scapegoat.crafting.sending import Peers, inner, with_norm
from scapegoat.devices import host
from scapegoat.errors import InputError

SHORT = 10
"""Vectors times this must be fewer than the numbers of one for trials in the space that they span to be worth it."""

STRONGEST = 10.0
"""The greatest multiple of the attack direction, in median norms of the peers."""


@dataclass(frozen=True)
class Aimed:
    """The best candidate found, its strength, and how far it moves the rule's output along the direction.

    `gain` is relative to the median norm of the peers and to what the peers' mean in its place would do.
    """

    update: Tensor
    strength: float
    gain: float
    kept: float


def aim(
    view: AttackerView,
    peers: Peers,
    direction: Tensor,
    rule: Rule,
    evaluations: int,
    known: Tensor,
    state: Mapping[str, Tensor] | None = None,
) -> Aimed | None:
    """Search the strength, at the candidate's own norm and at the peers' median; None if the rule refuses to run.

    Coarse places first, then halving the gap around the best of them, until `evaluations` runs of the rule are spent.
    `known` is an update that the attacker has anyway; the answer is never worse than it (its strength is noted as 0).
    Of candidates that move the output alike, as all do that the rule leaves out, the peers' mean is the answer. Every
    trial starts from a copy of `state`, the rule's memory before this round as the attacker has it.
    """
    whole = Copy(view, peers, direction, rule, {} if state is None else state)
    trials = whole.in_short(known) or whole
    try:
        nothing = trials.run(0.0, False)
        best = max(nothing, trials.known(known), key=lambda trial: trial.gain)
    except InputError:
        return None
    spent = 2
    coarse = [STRONGEST * 2.0**-i for i in range(max(1, (evaluations - spent) // 3))]
    for matched in (False, True):
        for strength in coarse[: evaluations - spent]:
            tried = trials.run(strength, matched)
            spent += 1
            if tried.gain > best.gain:
                best = tried
    reach = best.strength / 2
    while spent + 2 <= evaluations and reach > 0:
        for strength in (best.strength - reach / 2, best.strength + reach / 2):
            if 0 < strength <= STRONGEST:
                tried = trials.run(strength, best.matched)
                if tried.gain > best.gain:
                    best = tried
        spent += 2
        reach /= 2
    update = known if best.known else whole.candidate(best.strength, best.matched)
    return Aimed(update, best.strength, best.gain - nothing.gain, best.kept)


@dataclass(frozen=True)
class Trial:
    """A candidate, how far it moves the rule's output along the direction, and the share of it that is kept."""

    strength: float
    matched: bool
    gain: float
    kept: float
    known: bool = False


class Copy:
    """The attacker's copy of the rule, on the peers that it knows and its own rows.

    `state` is the rule's memory before the round; it stays as it is.
    """

    def __init__(
        self, view: AttackerView, peers: Peers, direction: Tensor, rule: Rule, state: Mapping[str, Tensor]
    ) -> None:
        self._view, self._peers, self._rule, self._state = view, peers, rule, state
        self._unit = with_norm(direction, 1.0)
        self._median = peers.median_norm or 1.0
        self._mean = peers.mean()
        self._rows: list[Tensor] = list(peers.rows)
        self._layout: tuple[tuple[str, tuple[int, ...]], ...] | None = view.gradients.model.layout
        self._seed = int(torch.randint(2**31, (), generator=view.generator))
        self._root: Tensor | None = None
        self._known: Tensor | None = None

    def in_short(self, known: Tensor) -> Copy | None:
        """The same trials in the space that all vectors span; None where a rule looks at more than lengths and angles.

        It has as many dimensions as there are vectors, of which the attacker knows a few dozen.
        """
        state = {name: value for name, value in self._state.items() if value.shape == known.shape}
        turn_free = all(part.turn_free and not getattr(part, "sketch", None) for part in self._rule.parts())
        if not turn_free or SHORT * (len(self._rows) + len(state) + 2) > len(known):
            return None
        vectors = [*self._rows, self._unit, known, *state.values()]
        found = geometry.gram(vectors)
        if not bool(found.isfinite().all()):
            return None
        # Of directions, not of vectors: beside a unit vector, updates may be so short that they are rounding.
        lengths = found.diagonal().clamp_min(0).sqrt()
        scale = torch.where(lengths > 0, lengths, 1.0)
        values, turned = torch.linalg.eigh(found / (scale[:, None] * scale[None, :]))
        places = (turned * values.clamp_min(0).sqrt() * lengths[:, None]).float()
        short, count = copy(self), len(self._rows)
        short._rows, short._unit, short._known = list(places[:count]), places[count], places[count + 1]
        short._mean = places[:count].mean(0)
        short._state = {**self._state, **dict(zip(state, places[count + 2 :], strict=True))}
        short._layout = None
        return short

    def candidate(self, strength: float, matched: bool) -> Tensor:
        """The peers' mean and so much of the direction."""
        candidate = self._mean + (strength * self._median) * self._unit
        return with_norm(candidate, self._median) if matched else candidate

    def run(self, strength: float, matched: bool) -> Trial:
        """What the rule does with the peers and a candidate of this strength."""
        gain, kept = self._tried(self.candidate(strength, matched))
        return Trial(strength, matched, gain, kept)

    def known(self, known: Tensor) -> Trial:
        """What it does with an update that the attacker has anyway."""
        gain, kept = self._tried(known if self._known is None else self._known)
        return Trial(0.0, False, gain, kept, known=True)

    def _tried(self, candidate: Tensor) -> tuple[float, float]:
        answer, _ = self._answer(candidate)
        kept = float(answer.kept[len(self._rows) :].float().mean())
        return inner(answer.update, self._unit) / self._median, kept

    def after(self, sent: Tensor) -> dict[str, Tensor]:
        """What the rule remembers once this was sent."""
        return self._answer(sent)[1]

    def _answer(self, candidate: Tensor) -> tuple[Aggregate, dict[str, Tensor]]:
        rows = [*self._rows, *[candidate] * self._view.senders]
        # Rules change the tensors of their memory in place.
        state = {name: tensor.clone() for name, tensor in self._state.items()}
        return self._rule(rows, self._context(len(rows), state)), state

    def _ids(self, n: int) -> tuple[int, ...]:
        known = self._view.clients
        if known is None:
            return tuple(range(n))
        return tuple(known[place] for place in self._peers.places) + known[len(self._view.peers) :]

    def _context(self, n: int, state: dict[str, Tensor]) -> AggregationContext:
        """The server's side as the attacker can imitate it: its mask data stand in for the server's own."""
        return AggregationContext(
            client_ids=self._ids(n),
            sample_counts=(1,) * n,
            round=self._view.round,
            generator=torch.Generator().manual_seed(self._seed),
            score=self._score,
            root_update=self._root_update,
            output_probe=self._probe(),
            layout=self._layout,
            state=state,
        )

    def _score(self, update: Tensor) -> Score:
        mask = self._view.mask
        model = self._view.gradients.model
        outputs = model.logits(self._view.parameters - update, mask.x)
        return Score(float(host(model.task.losses(outputs, mask.y, "mean"))), model.task.error(outputs, mask.y))

    def _root_update(self) -> Tensor:
        if self._root is None:
            self._root = self._view.gradients.mean(self._view.mask.x, self._view.mask.y)
        return self._root

    def _probe(self) -> Callable[[Tensor, int], Tensor]:
        def probe(update: Tensor, seed: int) -> Tensor:
            model = self._view.gradients.model
            noise = torch.rand(64, *model.input_shape, generator=torch.Generator().manual_seed(seed))
            noise = noise.to(model.device)
            return model.task.probabilities(model.logits(self._view.parameters - update, noise))

        return probe
