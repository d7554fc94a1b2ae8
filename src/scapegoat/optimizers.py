"""Optimizers on one flat vector: for the server of a simulation or a live federation, and for local epochs."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.optim.adam import adam

from scapegoat.errors import InputError

_SLOTS: dict[str, tuple[str, ...]] = {"sgd": (), "momentum": ("velocity",), "adam": ("first", "second", "steps")}


class OptimizerOptions(BaseModel):
    """SGD, SGD with heavy-ball momentum, or Adam (Kingma and Ba, 2015) as torch.optim.Adam computes it.

    It has no state of its own: `advance` keeps its moments in the mapping that the caller hands in and saves.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    optimizer: Literal["sgd", "momentum", "adam"] = "adam"
    """The method."""
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
    """Learning rate."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of SGD with momentum."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of Adam."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Of Adam."""
    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-8
    """Of Adam."""

    @property
    def vectors(self) -> int:
        """Vectors as long as the parameters that it keeps from step to step."""
        return len([slot for slot in _SLOTS[self.optimizer] if slot != "steps"])

    def advance(self, vector: Tensor, update: Tensor, state: MutableMapping[str, Tensor], pace: float = 1.0) -> None:
        """Move `vector` in place along minus the descent direction `update`; `pace` is a share of the learning rate."""
        lr = self.lr * pace
        if update.shape != vector.shape:
            raise InputError(f"an update of shape {tuple(update.shape)} came for parameters of {tuple(vector.shape)}")
        if self.optimizer == "sgd":
            vector.sub_(update, alpha=lr)
            return
        for slot in _SLOTS[self.optimizer]:
            if slot not in state:
                counter = torch.zeros((), dtype=torch.int64, device=vector.device)
                state[slot] = counter if slot == "steps" else torch.zeros_like(vector)
        if self.optimizer == "momentum":
            vector.sub_(state["velocity"].mul_(self.momentum).add_(update), alpha=lr)
            return
        # PyTorch's fused kernel goes over the vectors once and needs none of its own; it counts the step itself. It
        # reads memory as it lies, whatever strides, lengths and types say.
        moments = state["first"], state["second"]
        if not all(
            t.is_contiguous() and t.shape == vector.shape and t.dtype == vector.dtype for t in (vector, *moments)
        ):
            raise ValueError("Adam needs a contiguous vector, and moments of its length and type")
        with torch.no_grad():
            adam(
                [vector],
                [update.to(vector.dtype).contiguous()],
                [moments[0]],
                [moments[1]],
                [],
                [state["steps"].to(torch.float32)],
                fused=True,
                amsgrad=False,
                beta1=self.beta1,
                beta2=self.beta2,
                lr=lr,
                weight_decay=0.0,
                eps=self.eps,
                maximize=False,
            )
        state["steps"].add_(1)


class ServerOptimizer:
    """An optimizer with its state: `step` gives the next parameters and leaves its arguments as they are."""

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

    def step(self, vector: Tensor, update: Tensor, pace: float = 1.0) -> Tensor:
        """The next parameters; `pace` is a share of the learning rate."""
        following = vector.clone()
        self.options.advance(following, update, self.state, pace)
        return following
