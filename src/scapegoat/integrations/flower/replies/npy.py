"""The arrays that strangers send: NumPy's .npy format read by its grammar, and what is wrong with the bytes."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from scapegoat.integrations.shared.faults import MalformedReplyError, NDArray, plain

# No array that Flower or NumPy writes has a header nearly as long.
HEADER_BYTES = 4096

# The header of a .npy file is a Python dictionary. It is read by its grammar, never evaluated: what a stranger sent can
# then neither raise anything unforeseen nor cost more than its length.
_MAGICS = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4, b"\x93NUMPY\x03\x00": 4}  # -> bytes of the length
_BLANK = " \t\n"
_ENTRY = re.compile(
    r"""[ \t\n]*(?P<q>['"])(?P<key>descr|fortran_order|shape)(?P=q)[ \t\n]*:[ \t\n]*"""
    r"""(?:(?P<r>['"])(?P<type>[<>|=]?[A-Za-z?][0-9]{0,3})(?P=r)|(?P<flag>True|False)|\((?P<shape>[0-9, \t\n]*)\))"""
    r"""[ \t\n]*"""
)
_DIMENSION = re.compile(r"0|[1-9][0-9]{0,17}")
_DIMENSIONS = 32


def view(data: bytes) -> NDArray:
    """The array of numbers in a .npy byte string, without a copy. Damaged bytes are refused as MalformedReplyError."""
    shape, fortran, dtype, offset = _header(data)
    if len(data) - offset != math.prod(shape) * dtype.itemsize:
        raise MalformedReplyError(f"{len(data) - offset} bytes for an array of shape {shape} and type {dtype}")
    try:
        return np.frombuffer(data, dtype, offset=offset).reshape(shape, order="F" if fortran else "C")
    except ValueError as error:  # an array without elements can still have dimensions that NumPy does not take
        raise MalformedReplyError(f"bytes that are not an array ({error})") from None


def _header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, Fortran order and type, and where the numbers begin."""
    begin = 8 + _MAGICS.get(data[:8], len(data))
    if begin > len(data):
        raise MalformedReplyError("bytes that are not an array (no header of the .npy format)")
    end = begin + int.from_bytes(data[8:begin], "little")
    if end > min(len(data), HEADER_BYTES):
        raise MalformedReplyError(f"bytes that are not an array (a header of {end} bytes)")
    text = data[begin:end].decode("latin-1").strip(_BLANK)
    found: dict[str, re.Match[str]] = {}
    at = 1
    while text.startswith("{") and (entry := _ENTRY.match(text, at)) is not None:
        found[entry["key"]] = entry
        at = entry.end()
        if text[at : at + 1] != ",":
            break
        at += 1
    if len(found) != 3 or text[at:].strip(_BLANK) != "}":
        raise MalformedReplyError(f"bytes that are not an array (header {plain(text, 60)!r})")
    kind, flag, shape = found["descr"]["type"], found["fortran_order"]["flag"], found["shape"]["shape"]
    if kind is None or flag is None or shape is None:
        raise MalformedReplyError(f"bytes that are not an array (header {plain(text, 60)!r})")
    return _shape(shape), flag == "True", _number_type(kind), end


def _shape(text: str) -> tuple[int, ...]:
    sizes = [part.strip(_BLANK) for part in text.split(",")]
    single = len(sizes) == 1 and sizes != [""]  # (4) is a number, (4,) a shape
    if sizes[-1] == "":
        sizes.pop()
    if single or len(sizes) > _DIMENSIONS or not all(_DIMENSION.fullmatch(size) for size in sizes):
        raise MalformedReplyError(f"an array of shape ({plain(text, 60)})")
    return tuple(int(size) for size in sizes)


def _number_type(text: str) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(text)
    except TypeError:
        raise MalformedReplyError(f"an array of type {text!r}, which is none of NumPy's") from None
    if dtype.kind not in "fiub":
        raise MalformedReplyError(f"an array of type {text!r}, which is none of numbers")
    return dtype
