"""A plain blend: wrong labels mixed into honest training, in fixed shares."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register
from scapegoat.crafting.sending import Peers, blended, finished


@register("blend")
class Blend(Attack):
    """Sends share * g_attack + (1 - share) * g_mask over all mask samples, at the median norm of the peers.

    Nothing is searched for and no bound is kept: the honest part, over all mask samples, is less noisy than an honest
    client's mini-batch, and hides the other part from rules that rank by direction.
    """

    takes_bfloat16 = True
    uses_peers = False

    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the wrong-label gradient; the rest is honest."""

    def craft(self, view: AttackerView) -> Crafted:
        """The blend, at a length that norms do not give away."""
        peers = Peers.of(view)
        return finished(view, peers, blended(view, peers, self.share), {"share": self.share})
