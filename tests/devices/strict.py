"""A device that exists only in Python: its tensors compute as the CPU's do, and refuse to meet a tensor of the host's.

It is PyTorch's private-use device, with the CPU's kernels behind it. What a real accelerator refuses, or what makes it
wait, is an error here: tensors of the device and of the host in one operation (but for tensors of one number), a
generator of the host's for numbers on the device, NumPy's view of a tensor, operations whose answer's shape depends on
values, and every way to the host (`.cpu()`, `.item()`, `.tolist()`, `float()`, `bool()`, `copy_`) other than
`scapegoat.devices.host`, which may bring short results over and nothing as long as the model. Some devices have no
float64: neither has this one if asked to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from scapegoat import devices

_setup_privateuseone_for_python_backend("strict")
DEVICE = torch.device("strict", 0)

aten = torch.ops.aten

_ROUNDED = (aten.linear, aten.addmm, aten.mm, aten.bmm, aten.matmul, aten.convolution)
"""What autocast computes in fewer bits; devices have longer lists, and lists of what stays wide."""


def _in_fewer_bits(operation: Any) -> Callable[..., Any]:
    """The operation on numbers in the type of the autocast that is on, as a device's own autocast has it."""

    def rounded(thing: Any) -> Any:
        short = isinstance(thing, Tensor) and thing.device.type == DEVICE.type and thing.dtype == torch.float32
        return thing.to(torch.get_autocast_dtype(DEVICE.type)) if short else thing

    def call(*args: Any, **kwargs: Any) -> Any:
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
        with torch._C._ExcludeDispatchKeyGuard(key):
            return operation(*tree_map(rounded, args), **tree_map(rounded, kwargs))

    return call


# PyTorch asks these of whoever has a device and wants autocast there.
torch.get_device_module("strict").get_amp_supported_dtype = lambda: [torch.bfloat16]
_EVERY = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
_EVERY.fallback(torch.library.fallthrough_kernel)
_SOME = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
for _operation in _ROUNDED:
    _SOME.impl(_operation.default, _in_fewer_bits(_operation.default))

_WAITING = {
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.unique_consecutive.default,
    aten.repeat_interleave.Tensor,
    aten.bincount.default,
    aten.equal.default,
}
"""Operations for which a device makes the host wait: the shape of the answer, or the answer itself, is the host's."""


class MixedError(RuntimeError):
    """An operation met tensors of the device and of the host, or reached for the host."""


class Watch:
    """What the host has read from the device; only inside a round is it refused."""

    def __init__(self) -> None:
        self.longest: int | None = None
        self.read: list[tuple[int, ...]] = []

    def reads(self, what: Any, tensor: Tensor) -> None:
        """The host reads a tensor."""
        if self.longest is None:
            return
        if not _asked_by(devices.host.__code__):
            raise MixedError(f"{what}: the host read {tuple(tensor.shape)} other than by devices.host")
        if tensor.numel() >= self.longest:
            raise MixedError(f"{what}: the host read {tuple(tensor.shape)}; what is short has < {self.longest}")
        self.read.append(tuple(tensor.shape))

    def waits(self, what: Any) -> None:
        """The host has to wait for what a device has computed."""
        if self.longest is not None:
            raise MixedError(f"{what}: the host waits for the device; decide by what devices.host brought")


WATCH = Watch()


def _asked_by(code: Any) -> bool:
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


class Strict(Tensor):
    """A tensor on the device; `held` is where its numbers really are."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Strict:
        made: Strict = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=DEVICE,
        )
        made.held = held
        return made

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Strict({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func == Tensor.data.__set__:  # type: ignore[attr-defined]
                if not isinstance(args[1], Strict):
                    raise MixedError("a parameter on the device was pointed at a tensor of the host's")
                args[0].held = args[1].held
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    """Sees the operations without a tensor of the device's: those that make one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        return _run(func, args, kwargs or {})


def _held(thing: Any) -> Any:
    return thing.held if isinstance(thing, Strict) else thing


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on the numbers behind the tensors; refuses a mixture."""
    flat, _ = tree_flatten((args, kwargs))
    tensors = [thing for thing in flat if isinstance(thing, Tensor)]
    asked = kwargs.get("device")
    there = asked is not None and torch.device(asked).type == DEVICE.type
    if not there and not any(isinstance(t, Strict) for t in tensors):
        return func(*args, **kwargs)
    if func is aten._to_copy.default:
        stays = there or (asked is None and isinstance(args[0], Strict))
        if not stays:
            WATCH.reads(func, args[0])
        if stays:
            _refuse_float64(func, kwargs.get("dtype"))
        copied = func(_held(args[0]), **{key: value for key, value in kwargs.items() if key != "device"})
        return Strict(copied) if stays else copied
    if func is aten.copy_.default:
        if not isinstance(args[0], Strict):
            WATCH.reads(func, args[1])
        func(*tree_map(_held, args), **kwargs)
        return args[0]
    if func is aten._local_scalar_dense.default:
        WATCH.reads(func, args[0])
        return func(_held(args[0]))
    _refuse(func, args, flat, tensors)
    if there:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    answer = func(*tree_map(_held, args), **tree_map(_held, kwargs))
    # What was written in place, or into `out`, is the caller's own tensor again.
    known = {id(t.held): t for t in tensors if isinstance(t, Strict)}

    def back(thing: Any) -> Any:
        if not isinstance(thing, Tensor):
            return thing
        _refuse_float64(func, thing.dtype)
        return known[id(thing)] if id(thing) in known else Strict(thing)

    return tree_map(back, answer)


def _refuse_float64(func: Any, dtype: torch.dtype | None) -> None:
    if dtype == torch.float64 and devices.exact(DEVICE) != torch.float64:
        raise MixedError(f"{func}: the device has no float64")


def _refuse(func: Any, args: Any, flat: list[Any], tensors: list[Tensor]) -> None:
    for thing in flat:
        if isinstance(thing, torch.Generator):
            raise MixedError(f"{func}: a generator of the host's was asked for numbers on the device")
    for t in tensors:
        if not isinstance(t, Strict) and t.dim() > 0:
            raise MixedError(f"{func}: a tensor {tuple(t.shape)} of the host's met the device")
    by_mask = func in (aten.index.Tensor, aten.index_put_.default) and any(
        isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1]
    )
    if func in _WAITING or by_mask:
        WATCH.waits(func)


@contextmanager
def on_the_device(float64: bool = True) -> Iterator[None]:
    """Inside, specs that name no device are staged on the strict one, whose tensors can be made."""
    lacking = devices.WITHOUT_FLOAT64 if float64 else devices.WITHOUT_FLOAT64 | {DEVICE.type}
    with (
        mock.patch.object(devices, "find", return_value=DEVICE),
        mock.patch.object(devices, "WITHOUT_FLOAT64", lacking),
        _Mode(),
    ):
        yield


@contextmanager
def round_on(d: int) -> Iterator[Watch]:
    """Inside, the host reads nothing as long as a model of d parameters, and short results by one function only."""
    WATCH.longest, WATCH.read = d, []
    try:
        yield WATCH
    finally:
        WATCH.longest = None
