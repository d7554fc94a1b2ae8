"""What an attacker sends in a round in which it does not attack."""

from __future__ import annotations

from typing import Literal

from scapegoat.crafting.contract import AttackerView, Crafted
from scapegoat.crafting.sending import Peers, finished, with_norm

Rest = Literal["honest", "echo"]
"""Honest training on the mask data, or the mean of the peers at their median norm: nobody looks more harmless."""


def rest(view: AttackerView, how: Rest) -> Crafted:
    """Honest updates, or the echo; without a peer there is nothing to echo, and honest updates are sent."""
    peers = Peers.of(view)
    if how == "honest" or not len(peers):
        return Crafted(view.honest())
    return finished(view, peers, with_norm(peers.mean(), peers.median_norm), {"resting": 1.0})
