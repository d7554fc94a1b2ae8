"""The attack that keeps books: it runs a copy of a rule with memory, and that copy remembers."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from pydantic import Field, WithJsonSchema, field_validator

from scapegoat import aggregation
from scapegoat.crafting.black_box import Copy, aim
from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register
from scapegoat.crafting.sending import Peers, finished, inner, to_scale, with_norm

_KEPT = "rule/"
"""What the copy remembers has this before its names in the attack's memory."""


@register("shadow")
class Shadow(Attack):
    """Tries candidates on its own copy of the rule, whose memory it keeps from round to round, and sends the best one.

    Like `adaptive` with a `target_rule`, but the copy knows the past. The candidate that moves the copy's output
    farthest along the wrong-label gradient is sent; as long as the copy would keep none, the mean of the peers, by
    which a reputation recovers soonest. It is granted whose update is whose, never the memory of the real rule. With
    full knowledge and a synchronous schedule the copy is exact, but for rounds in which none of its clients was picked.
    """

    told_clients = True

    target_rule: Annotated[Any, WithJsonSchema({"allowed": "a defense"})] = Field(
        "reputation_atm", validate_default=True
    )
    """The defense that it is aimed at, as the spec writes it."""
    evaluations: Annotated[int, Field(ge=4)] = 24
    """Times per round that the copy is tried."""

    @field_validator("target_rule")
    @classmethod
    def _known_rule(cls, value: Any) -> Any:
        return aggregation.parse(value).canonical()

    def craft(self, view: AttackerView) -> Crafted:
        """The best candidate; the copy then remembers that it was sent."""
        peers = Peers.of(view)
        attack = to_scale(view, peers, view.gradients.mean(view.targets.x, view.wrong_labels))
        if not math.isfinite(inner(attack, attack)):
            return finished(view, peers, torch.zeros_like(attack), {"diverged": 1.0})
        rule = aggregation.parse(self.target_rule)
        state = {key.removeprefix(_KEPT): value for key, value in view.memory.items() if key.startswith(_KEPT)}
        known = with_norm(attack, peers.median_norm)
        aimed = aim(view, peers, attack, rule, self.evaluations, known, state) if len(peers) else None
        if aimed is None:
            return finished(view, peers, known, {"unbounded": 1.0})
        # What is left out moves nothing and costs reputation.
        update = aimed.update if aimed.kept else peers.mean()
        notes = {"strength": aimed.strength if aimed.kept else 0.0, "gain": aimed.gain, "kept_by_copy": aimed.kept}
        crafted = finished(view, peers, update, notes)
        for key in [key for key in view.memory if key.startswith(_KEPT)]:
            del view.memory[key]
        after = Copy(view, peers, attack, rule, state).after(crafted.updates[0])
        view.memory.update({_KEPT + key: value for key, value in after.items()})
        return crafted
