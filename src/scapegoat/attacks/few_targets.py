"""All of the budget on a few targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field

from scapegoat.crafting.contract import AttackerView, Crafted, Samples, register
from scapegoat.crafting.wrapping import Around


@register("few_targets")
class FewTargets(Around):
    """Aims the inner attack at `few` of the targets; the little that gets through is spent on them alone.

    With `stint` it moves on to the next few after so many rounds, and returns to the first after the last: the poison
    of two stints has little in common, so it pulls nowhere steadily.
    """

    few: Annotated[int, Field(ge=1)] = 30
    """Targets that are attacked at a time."""
    stint: Annotated[int, Field(ge=0)] = 0
    """Rounds until it moves on to the next few; 0: never."""

    def craft(self, view: AttackerView) -> Crafted:
        """The inner attack on the targets whose turn it is."""
        groups = -(-len(view.targets) // self.few)
        turn = view.round // self.stint % groups if self.stint else 0
        last = min((turn + 1) * self.few, len(view.targets))
        aimed = torch.arange(turn * self.few, last, device=view.wrong_labels.device)
        targets = Samples(*view.targets.take(aimed))
        return self.poison.craft(replace(view, targets=targets, wrong_labels=view.wrong_labels[aimed]))

    def aimed_at(self, targets: int) -> int:
        """The few, or all of them in turn."""
        return super().aimed_at(targets if self.stint else min(self.few, targets))
