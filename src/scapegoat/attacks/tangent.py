"""The blend that knows of the model's length: it pulls the parameters back no more than its peers do."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field
from torch import Tensor

from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register
from scapegoat.crafting.sending import Peers, blended, finished, inner


@register("tangent")
class Tangent(Attack):
    """Sends the blend, with the median peer's component along the global parameters in place of its own.

    Wrong labels ask for a smaller model: to shrink the parameters w takes back everything that was learnt at once. An
    update g of an honest client has g·w < 0, that of an attacker g·w > 0. It gives the attacker away, and does the
    work of weight decay, which the attacker would rather see undone. So the rest of the blend, at a right angle to w,
    is sent at the median norm of the peers with their median cosine to w.
    """

    takes_bfloat16 = True

    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the wrong-label gradient in the blend; the rest is honest."""

    def craft(self, view: AttackerView) -> Crafted:
        """The blend, turned."""
        peers = Peers.of(view)
        along = _median_cosine(peers, view.parameters)
        update = _turned(blended(view, peers, self.share), view.parameters, along)
        return finished(view, peers, update, {"share": self.share, "along": along})


def _median_cosine(peers: Peers, parameters: Tensor) -> float:
    """Of the peers with the parameters; 0 where there is nothing to compare."""
    length = math.sqrt(inner(parameters, parameters))
    lengths = np.sqrt(np.diag(peers.gram)) * length
    some = (lengths > 0) & np.isfinite(lengths)
    if not some.any():
        return 0.0
    return float(np.clip(np.median(peers.dot(parameters)[some] / lengths[some]), -1.0, 1.0))


def _turned(update: Tensor, parameters: Tensor, cosine: float) -> Tensor:
    """An update as long as this one, with this cosine to the parameters; unchanged where that has no meaning."""
    square, length = inner(parameters, parameters), math.sqrt(inner(update, update))
    if not (0 < square < math.inf and 0 < length < math.inf):
        return update
    across = update - parameters * (inner(update, parameters) / square)
    rest = math.sqrt(inner(across, across))
    turned = across * (length * math.sqrt(1 - cosine**2) / rest) if rest > 0 else across
    return turned + parameters * (cosine * length / math.sqrt(square))
