"""A sleeper: harmless until its reputation stands, then hostile."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scapegoat.crafting.contract import AttackerView, Crafted, register
from scapegoat.crafting.resting import Rest, rest
from scapegoat.crafting.wrapping import Around


@register("sleeper")
class Sleeper(Around):
    """Rests until round `until`, then sends the inner attack: against rules that trust who has behaved well.

    Unlike `start_round`, which only delays an attack, it can spend the time on looking better than honest (`echo`).
    """

    until: Annotated[int, Field(ge=0)] = 50
    """First round of the inner attack."""
    rest: Rest = "echo"
    """What it sends before: honest training, or the mean of the peers."""

    def craft(self, view: AttackerView) -> Crafted:
        """The disguise, or the poison."""
        return rest(view, self.rest) if view.round < self.until else self.poison.craft(view)
