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

from scapegoat.data.formats.safe_io import wrong
from scapegoat.errors import DataError


class _Dtype:
    def __init__(self, code: Any = None, *_: Any) -> None:
        text = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        self.code = text[:20] if isinstance(text, str) else ""

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like; bytes have none."""


class _Array:
    def __init__(self, state: Any = None) -> None:
        self.state = state

    def __setstate__(self, state: Any) -> None:
        self.state = state


# What dictionaries, lists, text, bytes, numbers and arrays are pickled with, by any version of Python. Sets and objects
# are not needed, and each operation that is not there cannot be turned to harm.
_OPERATIONS = """
    PROTO FRAME STOP MARK POP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1
    STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8
    EMPTY_DICT EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE
"""
# A batch of 10,000 pictures with their names takes 30,000, up to 120,000 where bytes are written as text.
_MOST_OPERATIONS = 250_000


class _Reader(pickle._Unpickler):
    """The pure-Python unpickler (the C one allocates its memo as large as the program says), of few operations."""

    dispatch: ClassVar[dict[int, Any]] = {}

    def __init__(self, content: bytes, where: object) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._where = where
        self._operations = _MOST_OPERATIONS
        self._room = 2 * len(content)

    def _refused(self, reason: str) -> DataError:
        return wrong(self._where, f"is a pickle {reason}; only arrays, numbers and text are read")

    def _load_bytearray(self) -> None:
        # The original allocates as many bytes as the program says before it reads them.
        read: Any = self.read  # type: ignore[attr-defined]
        (count,) = struct.unpack("<Q", read(8))
        self.append(read(count))  # type: ignore[attr-defined]

    def _load_item(self) -> None:
        stack: list[Any] = self.stack  # type: ignore[attr-defined]
        self._set(stack[-3], stack[-2:])
        del stack[-2:]

    def _load_items(self) -> None:
        items: list[Any] = self.pop_mark()  # type: ignore[attr-defined]
        self._set(self.stack[-1], items)  # type: ignore[attr-defined]

    def _load_dict(self) -> None:
        items: list[Any] = self.pop_mark()  # type: ignore[attr-defined]
        made: dict[Any, Any] = {}
        self._set(made, items)
        self.append(made)  # type: ignore[attr-defined]

    def _set(self, into: Any, items: list[Any]) -> None:
        """Keys are text: hashing a tuple of tuples of tuples, or spelling it out, may take forever."""
        if type(into) is not dict or not all(isinstance(key, str | bytes) for key in items[::2]):
            raise self._refused("with keys that are not text")
        into.update(zip(items[::2], items[1::2], strict=True))

    def _load_build(self) -> None:
        stack: list[Any] = self.stack  # type: ignore[attr-defined]
        state = stack.pop()
        if not isinstance(stack[-1], _Array | _Dtype):
            raise self._refused("of objects")
        stack[-1].__setstate__(state)

    def _encoded(self, text: Any, *_: Any) -> bytes:
        """Bytes as old protocols write them; the same text again and again must not fill the memory."""
        self._room -= len(text) if isinstance(text, str) else self._room + 1
        if self._room < 0:
            raise self._refused("that repeats its text")
        return str(text).encode("latin-1")

    def find_class(self, module: str, name: str) -> Any:
        """Stand-ins for what arrays consist of; a DataError for everything else."""
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return lambda *_: _Array()
        if module in ("numpy.core.numeric", "numpy._core.numeric") and name == "_frombuffer":
            return lambda content, dtype, shape, order: _Array((1, shape, dtype, order == "F", content))
        if module == "numpy" and name == "dtype":
            return lambda *arguments: _Dtype(*arguments)
        if module == "numpy" and name == "ndarray":
            return "ndarray"
        if module == "_codecs" and name == "encode":
            return self._encoded
        raise self._refused(f"that asks for {module[:80]}.{name[:80]}")


def _counted(operation: Any) -> Any:
    """Every operation takes memory, of which a byte of the program can ask for a hundred."""

    def run(reader: _Reader) -> None:
        reader._operations -= 1
        if reader._operations < 0:
            raise reader._refused(f"of more than {_MOST_OPERATIONS:,} operations")
        operation(reader)

    return run


def _not_admitted(reader: _Reader) -> None:
    raise reader._refused("with operations that arrays do not need")


_OWN = {
    pickle.BYTEARRAY8: _Reader._load_bytearray,
    pickle.SETITEM: _Reader._load_item,
    pickle.SETITEMS: _Reader._load_items,
    pickle.DICT: _Reader._load_dict,
    pickle.BUILD: _Reader._load_build,
}
_Reader.dispatch |= dict.fromkeys(range(256), _not_admitted)
_PLAIN = [getattr(pickle, name)[0] for name in _OPERATIONS.split()]
_Reader.dispatch |= {code: _counted(pickle._Unpickler.dispatch[code]) for code in _PLAIN}
_Reader.dispatch |= {code[0]: _counted(operation) for code, operation in _OWN.items()}


def load_dict(content: bytes, where: object) -> dict[str, Any]:
    """The dictionary that is pickled in `content`, keys as text; arrays still as `_Array` (see `uint8_array`)."""
    try:
        loaded = _Reader(content, where).load()
    except DataError:
        raise
    except Exception as error:  # a broken program can fail in any way at all; its message may be of any length
        raise wrong(where, f"is not a whole pickle ({type(error).__name__}); get it again") from error
    if not isinstance(loaded, dict):
        raise wrong(where, f"is a pickled {type(loaded).__name__}; a dictionary is expected")
    return {k.decode("utf-8", "replace") if isinstance(k, bytes) else k: v for k, v in loaded.items()}


def uint8_array(value: Any, where: object) -> NDArray[np.uint8]:
    """The array behind a stand-in; only uint8 is admitted."""
    state = value.state if isinstance(value, _Array) else None
    if not isinstance(state, tuple) or len(state) != 5:
        raise wrong(where, "does not hold an array where one is expected")
    _, shape, dtype, fortran, content = state
    if not isinstance(dtype, _Dtype) or dtype.code not in ("u1", "|u1", "B"):
        code = dtype.code if isinstance(dtype, _Dtype) else ""
        raise wrong(where, f"an array of {code or 'something'}; bytes (uint8) are expected")
    if (
        not isinstance(content, bytes)
        or not isinstance(shape, tuple)
        or len(shape) > 4
        or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape)
    ):
        raise wrong(where, "an array without a proper shape and content")
    if math.prod(shape) != len(content):
        raise wrong(where, f"an array that claims shape {shape} but has {len(content):,} bytes")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")
