"""The server's optimizer on flat vectors: what turns an aggregate into the next global parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from scapegoat.errors import InputError

Name = Literal["sgd", "momentum", "adam"]
_SLOTS: dict[str, tuple[str, ...]] = {"sgd": (), "momentum": ("velocity",), "adam": ("first", "second", "steps")}


class OptimizerOptions(BaseModel):
    """Options of the server's optimizer, as a spec writes them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    optimizer: Name = "adam"
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-8


class ServerOptimizer:
    """Steps a flat parameter vector along an aggregated update (a descent direction).

    `sgd` subtracts lr times the update, `momentum` lr times the heavy-ball velocity, `adam` follows Kingma and Ba
    (2015) with bias correction, as torch.optim.Adam computes it. `state` holds all that the next step depends on.
    """

    def __init__(self, options: OptimizerOptions | None = None, state: Mapping[str, Tensor] | None = None) -> None:
        self.options = options if options is not None else OptimizerOptions()
        self.state: dict[str, Tensor] = {}
        if state is not None:
            self.load(state)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a saved state; refuses one that belongs to another optimizer."""
        wanted = set(_SLOTS[self.options.optimizer])
        if state and set(state) != wanted:
            raise InputError(
                f"optimizer {self.options.optimizer}: its state has {sorted(wanted)}, the saved one {sorted(state)}"
            )
        self.state = {name: tensor.clone() for name, tensor in state.items()}

    def step(self, vector: Tensor, update: Tensor) -> Tensor:
        """The next parameters; `vector` and `update` are left as they are."""
        options = self.options
        if options.optimizer == "sgd":
            return vector - options.lr * update
        for name in _SLOTS[options.optimizer]:
            if name not in self.state:
                self.state[name] = torch.zeros((), dtype=torch.int64) if name == "steps" else torch.zeros_like(vector)
        if options.optimizer == "momentum":
            velocity = self.state["velocity"].mul_(options.momentum).add_(update)
            return vector - options.lr * velocity
        self.state["steps"] += 1
        steps = int(self.state["steps"])
        first = self.state["first"].lerp_(update, 1 - options.beta1)
        second = self.state["second"].mul_(options.beta2).addcmul_(update, update, value=1 - options.beta2)
        scale = second.sqrt().div_((1 - options.beta2**steps) ** 0.5).add_(options.eps)
        return torch.addcdiv(vector, first, scale, value=-options.lr / (1 - options.beta1**steps))
