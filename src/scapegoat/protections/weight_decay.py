"""Weight decay by the server: the parameters are pulled towards zero in every step."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.protecting.contract import ServerProtection, register


@register("weight_decay")
class WeightDecay(ServerProtection):
    """The server adds rate · parameters to the aggregate; `decoupled` shrinks the parameters beside the step instead.

    Coupled, it is the gradient of rate/2 · |parameters|² in the clients' loss (Krogh and Hertz, 1991), and passes
    through the server's optimizer. Decoupled (Loshchilov and Hutter, 2019, Algorithm 2) the parameters are multiplied
    by 1 - lr · rate before the step, as torch.optim.AdamW does. For a server that steps by SGD the two are the same; at
    lr 1, as with local epochs, the parameters shrink by `rate` per step.
    """

    rate: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Share of the parameters that is added to the aggregate."""
    decoupled: bool = False
    """Whether the parameters shrink by lr x rate beside the step instead."""

    def before_step(self, parameters: Tensor, update: Tensor, lr: float) -> Tensor:
        """Coupled, another direction; decoupled, smaller parameters and the same direction."""
        if self.decoupled:
            parameters.mul_(1 - lr * self.rate)
            return update
        return torch.add(update, parameters, alpha=self.rate)
