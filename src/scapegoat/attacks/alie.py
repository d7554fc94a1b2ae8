"""A little is enough (Baruch et al. 2019): within the spread of honest updates, on the far side of their mean."""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated

from pydantic import Field

from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register
from scapegoat.crafting.sending import Peers, finished


def largest_z(n: int, m: int) -> float:
    """The paper's z_max for m hostile of n: s = n//2 + 1 - m honest updates, at least one, lie farther out than that.

    Zero where the hostile are too few to have a majority with those: a z below zero would push the other way.
    """
    honest = n - m
    share = 1 - max(1, n // 2 + 1 - m) / honest
    return max(0.0, NormalDist().inv_cdf(share)) if share > 0 else 0.0


@register("alie")
class ALittleIsEnough(Attack):
    """Sends mean - z * standard deviation of the peers, coordinate by coordinate: it hurts accuracy, not privacy.

    For comparison: what a rule made against poisoning does with an attack of its own kind.
    """

    takes_bfloat16 = True
    least_peers = 2

    z: Annotated[float, Field(ge=0, le=100)] | None = None
    """Standard deviations away from the mean; none: the paper's z_max for the clients it sees and has."""

    def craft(self, view: AttackerView) -> Crafted:
        """As far out as the honest spread hides."""
        peers = Peers.of(view)
        if not len(peers):
            return Crafted(view.honest())
        z = largest_z(len(peers) + view.senders, view.senders) if self.z is None else self.z
        update = peers.mean() - z * peers.spread()
        return finished(view, peers, update, {"z": z})
