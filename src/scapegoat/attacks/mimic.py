"""Mimic (Karimireddy et al. 2022): all hostile clients send what one honest client sends."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register
from scapegoat.crafting.measures import Floats
from scapegoat.crafting.sending import Peers, finished


def most_outlying(gram: Floats) -> int:
    """The peer with the largest |<z, g_k>|, z being the direction in which the peers vary most; from their Gram matrix.

    The paper follows z over its first rounds; here it is this round's.
    """
    n = len(gram)
    centred = np.eye(n) - 1 / n
    # z is a sum of the centred peers, weighted by the first eigenvector; its length does not matter.
    weights = centred @ np.linalg.eigh(centred @ gram @ centred)[1][:, -1]
    return int(np.abs(gram @ weights).argmax())


@register("mimic")
class Mimic(Attack):
    """Sends a copy of one peer's update: rules that leave out the odd ones then leave out other honest clients.

    It hurts accuracy where clients' data differ, not privacy. For comparison.
    """

    takes_bfloat16 = True
    least_peers = 1

    peer: Annotated[int, Field(ge=0)] | None = None
    """Whom to copy, counted among the peers that it sees (the last if they are fewer); none: the most outlying one."""

    def craft(self, view: AttackerView) -> Crafted:
        """One peer's update, once more."""
        peers = Peers.of(view)
        if not len(peers):
            return Crafted(view.honest())
        chosen = most_outlying(peers.gram) if self.peer is None else min(self.peer, len(peers) - 1)
        return finished(view, peers, peers.rows[chosen].clone(), {"mimicked": float(chosen)})
