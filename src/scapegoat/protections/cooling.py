"""Smaller and smaller steps of the server, so that the last models differ little from their mean."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from scapegoat.protecting.contract import ServerProtection, register


@register("cooling")
class Cooling(ServerProtection):
    """The server's learning rate falls along half a cosine, from its own in the first round to `last` times that.

    The annealing of Loshchilov and Hutter (2017, equation 5), over all rounds of the federation. By itself it hides
    next to nothing; under weight decay, whose price is that the model never comes to rest, it gives the accuracy back.
    """

    last: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the learning rate that is approached at the end."""

    def pace(self, done: float) -> float:
        """Half a cosine from 1 to `last`."""
        return self.last + (1 - self.last) * (1 + math.cos(math.pi * done)) / 2
