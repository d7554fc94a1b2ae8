"""Poison with pauses: hostile rounds between harmless ones."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from scapegoat.crafting.contract import AttackerView, Crafted, register
from scapegoat.crafting.resting import Rest, rest
from scapegoat.crafting.wrapping import Around
from scapegoat.errors import OptionError


@register("alternating")
class Alternating(Around):
    """Sends the inner attack in `work` rounds of `every`, and rests in the others, in which suspicion fades."""

    every: Annotated[int, Field(ge=1)] = 2
    """Rounds of a cycle."""
    work: Annotated[int, Field(ge=1)] = 1
    """Hostile rounds of a cycle, the last ones of it."""
    rest: Rest = "honest"
    """What it sends in the others: honest training, or the mean of the peers."""

    @model_validator(mode="after")
    def _fits(self) -> Alternating:
        if self.work > self.every:
            raise OptionError("work", f"{self.work} rounds of {self.every} (allowed: 1 to {self.every})")
        return self

    def craft(self, view: AttackerView) -> Crafted:
        """The poison in its rounds, the disguise in the others."""
        resting = view.round % self.every < self.every - self.work
        return rest(view, self.rest) if resting else self.poison.craft(view)
