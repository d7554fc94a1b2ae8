"""What FLARE carries models in: NumPy arrays, torch tensors, or references to tensors that wait on a disk."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from scapegoat.integrations.shared.faults import MalformedReplyError, NDArray
from scapegoat.integrations.shared.layout import Layout


class FlareLayout(Layout):
    """The layout of a FLARE model. Replies may hold other number types than were sent: FLARE's filters make them."""

    def read(self, name: str, value: Any) -> NDArray:
        """The numbers of an array, a tensor, or a tensor on a disk, which is read here."""
        if callable(getattr(value, "materialize", None)):
            value = value.materialize()
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu()
            value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = np.asarray(value)  # an array without dimensions after arithmetic
        if isinstance(value, np.generic):
            value = np.asarray(value)
        return super().read(name, value)

    def size_of(self, value: Any) -> int:
        """Bytes of an array or a tensor; of one on a disk what its file says, before anything of it is read."""
        if not callable(getattr(value, "materialize", None)):
            return super().size_of(value)
        with safe_open(value.file_path, framework="pt") as file:
            waiting = file.get_slice(value.key)
            shape: list[int] = waiting.get_shape()
            return math.prod(shape) * _bytes(waiting.get_dtype())


def _bytes(kind: str) -> int:
    """Bytes of a number by safetensors' name of its type: F32, BF16, F8_E4M3, BOOL."""
    bits = re.search(r"\d+", kind)
    return max(1, int(bits[0]) // 8) if bits else 1


def arrays_of(params: Mapping[str, Any]) -> dict[str, NDArray]:
    """A global model's parameters as arrays, without a copy where that is possible."""
    reader = FlareLayout.__new__(FlareLayout)
    return {name: reader.read(name, value) for name, value in params.items()}


def like(arrays: Mapping[str, NDArray], params: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays carried as the parameters of the same names are: as NumPy arrays or as torch tensors."""
    return {
        name: torch.tensor(value).to(params[name].dtype) if isinstance(params.get(name), torch.Tensor) else value
        for name, value in arrays.items()
    }


def checked_params(params: Any) -> Mapping[str, Any]:
    """A reply's parameters, if they are named arrays at all, or MalformedReplyError."""
    if not isinstance(params, Mapping):
        raise MalformedReplyError(f"parameters as {type(params).__name__}, not by name")
    if odd := [name for name in params if not isinstance(name, str)]:
        raise MalformedReplyError(f"a parameter without a name ({type(odd[0]).__name__})")
    return params
