"""Optimizers on one flat vector, for the server and for local epochs."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor


class Optimizer(BaseModel):
    """SGD, SGD with momentum, or Adam (Kingma and Ba, 2015) on flat vectors.

    It has no state of its own: `step` keeps its moments in the mapping that the caller hands in and saves.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    optimizer: Literal["sgd", "momentum", "adam"] = "adam"
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8

    def step(self, vector: Tensor, update: Tensor, state: MutableMapping[str, Tensor]) -> None:
        """Move `vector` in place along minus the descent direction `update`."""
        if self.optimizer == "sgd":
            vector.sub_(update, alpha=self.lr)
            return
        if self.optimizer == "momentum":
            if "velocity" not in state:
                state["velocity"] = torch.zeros_like(vector)
            velocity = state["velocity"].mul_(self.momentum).add_(update)
            vector.sub_(velocity, alpha=self.lr)
            return
        if "mean" not in state:
            state["mean"] = torch.zeros_like(vector)
            state["square"] = torch.zeros_like(vector)
            state["steps"] = torch.zeros((), dtype=torch.int64)
        beta1, beta2 = self.betas
        steps = int(state["steps"].add_(1))
        mean = state["mean"].lerp_(update, 1 - beta1)
        square = state["square"].mul_(beta2).addcmul_(update, update, value=1 - beta2)
        scale = (1 - beta2**steps) ** 0.5
        denominator = square.sqrt().add_(self.eps * scale)
        vector.addcdiv_(mean, denominator, value=-self.lr * scale / (1 - beta1**steps))
