"""Arrays of any library as tensors: NumPy, pandas and JAX by `np.asarray`, others by DLPack, lists of numbers too."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack


def as_tensor(value: Any) -> Tensor | None:
    """The array's numbers as a tensor that shares its memory where it can, or None if it holds no real numbers.

    Floating-point and whole numbers are numbers; truth values, complex numbers, text and objects are not. Tensors must
    be dense and hold data. Nothing that the value does raises.
    """
    if isinstance(value, Tensor):
        return value.detach() if _is_real(value) else None
    if not (hasattr(value, "__array__") or hasattr(value, "__dlpack__") or isinstance(value, (list, tuple))):
        return None
    try:
        return _from_numpy(value)
    except Exception:  # whatever a foreign array, or something that poses as one, may raise
        return _from_dlpack(value)


def _is_real(tensor: Tensor) -> bool:
    whole = not tensor.dtype.is_complex and tensor.dtype != torch.bool
    return whole and tensor.layout == torch.strided and tensor.device.type != "meta" and not tensor.is_quantized


def _from_numpy(value: Any) -> Tensor:
    array: NDArray[Any] = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{array.dtype} are not real numbers")
    if array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    # Torch shares memory that is in this machine's byte order, runs forwards and may be written.
    native = array.dtype.isnative and all(step >= 0 for step in array.strides) and array.flags.writeable
    return torch.from_numpy(array if native else array.astype(array.dtype.newbyteorder("="), order="C", copy=True))


def _from_dlpack(value: Any) -> Tensor | None:
    try:
        tensor = from_dlpack(value).cpu()
    except Exception:  # as above
        return None
    return tensor if _is_real(tensor) else None
