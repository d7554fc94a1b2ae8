"""A user's torch module behind the named arrays that a federation sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from scapegoat.errors import InputError
from scapegoat.integrations.shared.faults import NDArray
from scapegoat.integrations.shared.layout import ReplyKind
from scapegoat.modelling.task import CLASSES
from scapegoat.models import FlatModel
from scapegoat.tasks import TaskSpec

# From a descent direction to what a reply of the kind holds, and back.
_SIGNS: dict[str, float] = {"updates": 1.0, "differences": -1.0}


class ReceivedModel:
    """The module at the parameters and buffers that a node was given.

    Arrays are matched with the module's `state_dict` by name; arrays without names (a list of NumPy arrays) by order.
    """

    def __init__(
        self, build: Callable[[], nn.Module], received: Mapping[str, NDArray], sample: Tensor, task: TaskSpec = CLASSES
    ) -> None:
        module = build()
        state = module.state_dict(keep_vars=True)
        self._names = _matched(list(state), list(received))
        self._reference = {name: np.asarray(received[self._names[name]]) for name in state}
        for name, value in self._reference.items():
            if tuple(value.shape) != tuple(state[name].shape):
                raise InputError(
                    f"the attacker's model: {name} has shape {tuple(state[name].shape)}, "
                    f"the federation sends {tuple(value.shape)}"
                )
        module.load_state_dict({name: torch.tensor(value) for name, value in self._reference.items()})
        self._aliases = {
            name: slot for name, value in state.items() if (slot := _parameter_name(module, value)) is not None
        }
        self.model = FlatModel(module, tuple(sample.shape[1:]), _outputs(module, sample, task), task=task)
        self.parameters = self.model.initial()
        starts = np.cumsum([0, *self.model.sizes])
        self._slices = {
            name: slice(int(starts[i]), int(starts[i + 1])) for i, (name, _) in enumerate(self.model.layout)
        }

    def update(self, reply: Mapping[str, NDArray], kind: ReplyKind) -> Tensor:
        """The descent direction [d] in a reply."""
        out = torch.empty(self.model.d)
        for name, part in self._slices.items():
            value = torch.from_numpy(np.array(reply[self._names[name]], dtype=np.float32).reshape(-1))
            out[part] = self.parameters[part] - value if kind == "arrays" else _SIGNS[kind] * value
        return out

    def reply(self, update: Tensor, honest: Mapping[str, NDArray], kind: ReplyKind) -> dict[str, NDArray]:
        """A reply that carries `update`; buffers and whatever is not trained stay as in the honest one."""
        out: dict[str, NDArray] = {}
        by_array = {array: name for name, array in self._names.items()}
        for array, value in honest.items():
            owner = self._aliases.get(by_array[array])
            if owner is None or owner not in self._slices:
                out[array] = value
                continue
            reference = self._reference[by_array[array]]
            step: NDArray = update[self._slices[owner]].numpy().reshape(reference.shape)
            sent = reference - step if kind == "arrays" else _SIGNS[kind] * step
            out[array] = np.ascontiguousarray(sent.astype(reference.dtype)).reshape(reference.shape)
        return out


def _matched(state: list[str], arrays: list[str]) -> dict[str, str]:
    """Name in the module -> name of the array."""
    if set(state) == set(arrays):
        return {name: name for name in state}
    numbers = [str(i) for i in range(len(state))]
    if set(arrays) == set(numbers):
        return dict(zip(state, numbers, strict=True))
    odd = next((name for name in state if name not in arrays), None) or next(n for n in arrays if n not in state)
    raise InputError(
        f"the attacker's model has {len(state)} arrays and the federation sends {len(arrays)}; they differ in {odd!r}"
    )


def _parameter_name(module: nn.Module, value: Tensor) -> str | None:
    """The first name of a parameter: tied weights have several in the state, one in the flat vector."""
    return next((name for name, parameter in module.named_parameters() if parameter is value), None)


def _outputs(module: nn.Module, sample: Tensor, task: TaskSpec) -> int:
    module.eval()
    with torch.no_grad():
        outputs = task.shaped(module(sample[:1]))
    if outputs.dim() != 2:
        raise InputError(
            f"the attacker's model maps a batch to shape {tuple(outputs.shape)}; class logits are expected"
        )
    return int(outputs.shape[1])
