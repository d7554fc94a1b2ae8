"""Gradient ascent on the targets (Nasr et al., 2019)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register
from scapegoat.crafting.sending import Peers, finished, to_scale


@register("gradient_ascent")
class GradientAscent(Attack):
    """Sends minus the gradient of the targets with their true labels, times `scale`."""

    takes_bfloat16 = True
    uses_peers = False

    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Times that the gradient is sent."""

    def craft(self, view: AttackerView) -> Crafted:
        """Climb the targets' loss."""
        peers = Peers.of(view)
        gradient = to_scale(view, peers, view.gradients.mean(view.targets.x, view.targets.y))
        return finished(view, peers, gradient * -self.scale, {})
