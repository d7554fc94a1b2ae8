"""Reading pickles of arrays without running anything that is in them.

A pickle is a program. This reader admits dictionaries, lists, strings, bytes, numbers and NumPy arrays; every name that
the program asks for beyond those is refused. Even NumPy's own reconstruction is not called: its names are answered with
plain containers, from which the array is rebuilt once its type, shape and length have been compared.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scapegoat.data.streams import wrong
from scapegoat.errors import DataError


class _Dtype:
    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code.decode("ascii", "replace") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like; bytes have none."""


class _Array:
    def __init__(self, state: Any = None) -> None:
        self.state = state

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle._Unpickler):
    """The pure-Python unpickler: the C one allocates its memo as large as the program says."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, content: bytes, where: object) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._where = where

    def _load_bytes(self) -> None:
        # The original allocates as many bytes as the program says before it reads them.
        read: Any = self.read  # type: ignore[attr-defined]
        (count,) = struct.unpack("<Q", read(8))
        self.append(read(count))  # type: ignore[attr-defined]

    dispatch[pickle.BYTEARRAY8[0]] = _load_bytes

    def find_class(self, module: str, name: str) -> Any:
        """Stand-ins for what arrays consist of; a DataError for everything else."""
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return lambda *_: _Array()
        if module in ("numpy.core.numeric", "numpy._core.numeric") and name == "_frombuffer":
            return lambda content, dtype, shape, order: _Array((1, shape, dtype, order == "F", bytes(content)))
        if module == "numpy" and name == "dtype":
            return lambda *arguments: _Dtype(*arguments)
        if module == "numpy" and name == "ndarray":
            return "ndarray"
        if module == "_codecs" and name == "encode":
            return lambda text, *_: text.encode("latin-1")
        raise wrong(self._where, f"is a pickle that asks for {module}.{name}; only arrays, numbers and text are read")

    def persistent_load(self, pid: Any) -> Any:
        """Never."""
        raise wrong(self._where, "is a pickle with references to the outside; only arrays, numbers and text are read")

    def get_extension(self, code: int) -> Any:
        """Never."""
        raise wrong(self._where, f"is a pickle with the extension {code}; only arrays, numbers and text are read")


def load_dict(content: bytes, where: object) -> dict[str, Any]:
    """The dictionary that is pickled in `content`, keys as text; arrays still as `_Array` (see `uint8_array`)."""
    try:
        loaded = _Reader(content, where).load()
    except DataError:
        raise
    except Exception as error:  # a broken program can fail in any way at all
        raise wrong(where, f"is not a whole pickle ({type(error).__name__}: {error}); get it again") from error
    if not isinstance(loaded, dict):
        raise wrong(where, f"is a pickled {type(loaded).__name__}; a dictionary is right")
    return {k.decode("utf-8", "replace") if isinstance(k, bytes) else str(k): v for k, v in loaded.items()}


def uint8_array(value: Any, where: object) -> NDArray[np.uint8]:
    """The array behind a stand-in; only uint8 is admitted."""
    state = value.state if isinstance(value, _Array) else None
    if not isinstance(state, tuple) or len(state) != 5:
        raise wrong(where, "does not hold an array where one is expected")
    _, shape, dtype, fortran, content = state
    if not isinstance(dtype, _Dtype) or dtype.code not in ("u1", "|u1", "B"):
        raise wrong(where, f"an array of {getattr(dtype, 'code', dtype)!r}; bytes (uint8) are right")
    if (
        not isinstance(content, bytes)
        or not isinstance(shape, tuple)
        or not all(type(n) is int and n >= 0 for n in shape)
    ):
        raise wrong(where, "an array without a proper shape and content")
    if math.prod(shape) != len(content):
        raise wrong(where, f"an array that claims shape {shape} but has {len(content):,} bytes")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")
