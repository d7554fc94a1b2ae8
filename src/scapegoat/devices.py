"""Where tensors live: on the processor, or from start to end on an accelerator.

What is as long as the model or holds records lives on the device of a run. What decides over rows (inner products of n
updates or s samples, norms, masks, counts) is short: it is computed on the device and brought to the host once, by
`host`, in float64, which not every device has. Randomness is drawn on the host and moved, so that a seed means the same
numbers everywhere.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from scapegoat.errors import InputError

CPU = torch.device("cpu")

WITHOUT_FLOAT64 = frozenset({"mps"})
"""Kinds of devices that have no float64: Apple's."""

Number = float | Tensor
"""A number, or on a device a tensor of one, which nobody waits for before it is asked for."""


def chosen(name: str) -> str:
    """The device that is meant: of `auto` the first accelerator that is there, else the processor."""
    if name != "auto":
        return name
    return next((kind for kind in ("cuda", "mps") if _there(kind)), "cpu")


def find(name: str) -> torch.device:
    """The device of this name; an InputError, in one line, where it is not there."""
    kind, _, index = chosen(name).partition(":")
    if kind == "cpu":
        return CPU
    if not _there(kind):
        found = [other for other in ("cuda", "mps") if _there(other)]
        raise InputError(
            f"device: {name} is not there (torch {torch.__version__} finds {' and '.join(['cpu', *found])}; "
            "device=auto takes what there is)"
        )
    count: int = torch.get_device_module(kind).device_count()
    if int(index or 0) >= count:
        last = f"{kind}:{count - 1}" if count > 1 else kind
        raise InputError(f"device: {name} is not there, the last one is {last}")
    return torch.device(kind, int(index or 0))


def _there(kind: str) -> bool:
    return bool(torch.cuda.is_available() if kind == "cuda" else torch.backends.mps.is_available())


def described(device: torch.device) -> str:
    """The device and, where it has one, its maker's name."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def host(tensor: Tensor) -> Tensor:
    """A short result on the host; as it is if it is there already. In a round nothing else leaves the device."""
    return tensor if tensor.device.type == "cpu" else tensor.cpu()


def later(value: Tensor) -> Number:
    """A tensor of one number as a float; on a device as it is, so that nobody waits for it yet."""
    return float(value) if value.device.type == "cpu" else value


def number(value: Number) -> float:
    """The number itself."""
    return float(host(value)) if isinstance(value, Tensor) else value


def exact(device: torch.device) -> torch.dtype:
    """The widest floating type of a device, for long sums."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free on the device; None where it is the host's memory or nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return None


def short_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on whichever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and ("out of memory" in str(error) or "t allocate memory" in str(error))


def release(name: str) -> None:
    """Give back what torch keeps of a device's memory for later, after a run."""
    kind = name.partition(":")[0]
    if kind in ("cuda", "mps") and _there(kind):
        torch.get_device_module(kind).empty_cache()


@contextmanager
def repeatable(name: str) -> Iterator[None]:
    """Inside, kernels of an accelerator sum in a fixed order where PyTorch has such, and in float32, not in TF32.

    On the processor they do so anyway.
    """
    if chosen(name) == "cpu":
        yield
        return
    # Read when CUDA's library of matrix products starts: with it, products are repeatable.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    settings: list[tuple[Any, str, bool]] = [
        (torch.backends.cudnn, "allow_tf32", False),
        (torch.backends.cudnn, "benchmark", False),
        (torch.backends.cuda.matmul, "allow_tf32", False),
        (torch.utils.deterministic, "fill_uninitialized_memory", False),
    ]
    before = [(where, what, getattr(where, what)) for where, what, _ in settings]
    asked, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*deterministic")
        try:
            torch.use_deterministic_algorithms(True, warn_only=True)
            for where, what, value in settings:
                setattr(where, what, value)
            yield
        finally:
            torch.use_deterministic_algorithms(asked, warn_only=warned)
            for where, what, value in before:
                setattr(where, what, value)


def stream_of(device: torch.device) -> Any:
    """The module whose random stream layers on this device draw from beside the host's; None for the processor."""
    return torch.get_device_module(device) if device.type in ("cuda", "mps") else None
