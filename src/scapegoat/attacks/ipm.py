"""Inner product manipulation (Xie et al. 2020): against the mean of the honest updates."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register
from scapegoat.crafting.sending import Peers, finished


@register("ipm")
class InnerProductManipulation(Attack):
    """Sends minus `scale` times the mean of the peers: it hurts accuracy, not privacy.

    For comparison: what a rule made against poisoning does with an attack of its own kind.
    """

    takes_bfloat16 = True
    least_peers = 1

    scale: Annotated[float, Field(gt=0, le=1e6)] = 0.5
    """Length of what is sent, in lengths of the peers' mean (the paper's epsilon)."""

    def craft(self, view: AttackerView) -> Crafted:
        """Away from where the peers go."""
        peers = Peers.of(view)
        if not len(peers):
            return Crafted(view.honest())
        return finished(view, peers, peers.mean() * -self.scale, {"scale": self.scale})
