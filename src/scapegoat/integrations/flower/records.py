"""Flower's named arrays as flat vectors: what was sent out, what came back, and what is wrong with it."""

from __future__ import annotations

import fnmatch
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy

from scapegoat.errors import InputError

NDArray = np.ndarray[Any, np.dtype[Any]]
ReplyKind = Literal["arrays", "updates"]
BufferMerge = Literal["mean", "median"]

# What PyTorch's BatchNorm keeps beside its weights. They are statistics, not directions: they never enter a rule.
BUFFER_NAMES = ("*running_mean", "*running_var", "*num_batches_tracked")
# A variance or a count below zero is no statistic of anything, and turns the model's outputs into NaN.
_NEVER_NEGATIVE = ("*running_var", "*num_batches_tracked")

# Rows are filled in blocks that stay in cache, so that the check for NaN reads nothing twice from memory.
_BLOCK = 1 << 16
_HEADER_BYTES = 4096


class MalformedReplyError(ValueError):
    """A reply that cannot be used; the message says why in a few words."""


@dataclass(frozen=True)
class Slot:
    """One array of the record: where it lies in the flat vector, or that it is a buffer (`start` is -1)."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def view(data: bytes) -> NDArray:
    """The array in a .npy byte string, without a copy. Nothing is unpickled; damaged bytes are refused."""
    stream = io.BytesIO(data[:_HEADER_BYTES])
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except (ValueError, EOFError, TypeError) as error:
        raise MalformedReplyError(f"bytes that are not an array ({str(error).splitlines()[0]})") from None
    if dtype.hasobject:
        raise MalformedReplyError("an array of Python objects")
    offset = stream.tell()
    if len(data) - offset != math.prod(shape) * dtype.itemsize:
        raise MalformedReplyError(f"{len(data) - offset} bytes for an array of shape {shape} and type {dtype}")
    return np.frombuffer(data, dtype, offset=offset).reshape(shape, order="F" if fortran else "C")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class Layout:
    """How the arrays that were sent out lie in one flat vector, and which of them are buffers.

    Arrays of floating-point numbers are parameters, unless their name matches one of `buffers` (shell patterns);
    integers and booleans are buffers always.
    """

    def __init__(self, sent: ArrayRecord, buffers: Sequence[str] = BUFFER_NAMES) -> None:
        self.slots: list[Slot] = []
        self._reference: dict[str, NDArray] = {}
        self.d = 0
        for name, array in sent.items():
            try:
                value = view(array.data)
            except MalformedReplyError as error:
                raise InputError(f"array {name!r} of the global model: {error}") from None
            buffer = value.dtype.kind != "f" or _matches(name, buffers)
            if value.dtype.kind not in "fiub":
                raise InputError(f"array {name!r} of the global model has type {value.dtype}; numbers are wanted")
            self.slots.append(Slot(name, value.shape, value.dtype, -1 if buffer else self.d))
            self._reference[name] = value
            self.d += 0 if buffer else value.size
        if self.d == 0:
            raise InputError("the global model has no floating-point arrays to train")
        self.parameters = [slot for slot in self.slots if slot.start >= 0]
        self.buffers = [slot for slot in self.slots if slot.start < 0]
        self._slots = {slot.name: slot for slot in self.slots}
        # Most models are all float32: their flat vector is then exact.
        self.exact = all(slot.dtype == np.float32 for slot in self.parameters)
        self.limit = sum(slot.size * slot.dtype.itemsize + _HEADER_BYTES for slot in self.slots)

    @property
    def shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of the parameters, in the order of the flat vector."""
        return tuple((slot.name, slot.shape) for slot in self.parameters)

    def vector(self) -> NDArray:
        """The parameters that were sent out as one float32 vector."""
        out = np.empty(self.d, dtype=np.float32)
        for slot in self.parameters:
            out[slot.start : slot.start + slot.size] = self._reference[slot.name].reshape(-1)
        return out

    def open(self, record: Mapping[str, Array]) -> dict[str, NDArray]:
        """The arrays of a reply, checked against what was sent out, without a copy."""
        if missing := [name for name in self._slots if name not in record]:
            raise MalformedReplyError(f"a partial model: array {missing[0]!r} is missing")
        if extra := [name for name in record if name not in self._slots]:
            raise MalformedReplyError(f"array {extra[0][:80]!r}, which was not sent out")
        # Sizes first: a reply of a hundred times the model is not even looked into.
        size = sum(len(array.data) for array in record.values())
        if size > self.limit:
            raise MalformedReplyError(f"{size} bytes where {self.limit} would hold the model")
        arrays = {}
        for name, slot in self._slots.items():
            array = record[name]
            if array.stype != "numpy.ndarray":
                raise MalformedReplyError(f"array {name!r} serialized as {array.stype[:40]!r}, not as a NumPy array")
            try:
                value = view(array.data)
            except MalformedReplyError as error:
                raise MalformedReplyError(f"array {name!r}: {error}") from None
            if value.shape != slot.shape:
                raise MalformedReplyError(f"array {name!r} of shape {value.shape}, sent out as {slot.shape}")
            if value.dtype != slot.dtype:
                raise MalformedReplyError(f"array {name!r} of type {value.dtype}, sent out as {slot.dtype}")
            arrays[name] = value
        return arrays

    def write_update(self, arrays: Mapping[str, NDArray], row: NDArray, kind: ReplyKind = "arrays") -> float:
        """Write the update (sent - received, a descent direction) to `row` and return its squared norm.

        With `updates` the reply holds the descent direction itself. Raises if a number in it is NaN, infinite or too
        large to square.
        """
        squares = 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            for slot in self.parameters:
                received = arrays[slot.name].reshape(-1)
                reference = self._reference[slot.name].reshape(-1)
                for begin in range(0, slot.size, _BLOCK):
                    end = min(begin + _BLOCK, slot.size)
                    out = row[slot.start + begin : slot.start + end]
                    if kind == "arrays":
                        np.subtract(reference[begin:end], received[begin:end], out=out, casting="same_kind")
                    else:
                        out[:] = received[begin:end]
                    squares += float(out @ out)
        if not math.isfinite(squares):
            odd = "values too large to square" if bool(np.isfinite(row).all()) else "NaN or infinite values"
            raise MalformedReplyError(odd)
        self._check_buffers(arrays)
        return squares

    def _check_buffers(self, arrays: Mapping[str, NDArray]) -> None:
        for slot in self.buffers:
            value = arrays[slot.name]
            if slot.dtype.kind == "f" and not bool(np.isfinite(value).all()):
                raise MalformedReplyError(f"NaN or infinite values in the buffer {slot.name!r}")
            if slot.dtype.kind in "fi" and _matches(slot.name, _NEVER_NEGATIVE) and bool((value < 0).any()):
                raise MalformedReplyError(f"negative values in the buffer {slot.name!r}")

    def merge_buffers(self, replies: Sequence[Mapping[str, NDArray]], how: BufferMerge) -> dict[str, NDArray]:
        """The buffers of the kept replies as one: their mean or median; of whole numbers always the rounded mean.

        Clients count alike: a weight that a client reports about itself would be a lever.
        """
        if not replies:
            return {slot.name: self._reference[slot.name] for slot in self.buffers}
        merged: dict[str, NDArray] = {}
        for slot in self.buffers:
            stack = np.stack([arrays[slot.name] for arrays in replies]).astype(np.float64)
            if slot.dtype.kind == "f":
                middle = stack.mean(0) if how == "mean" else np.median(stack, 0)
            else:
                middle = np.rint(stack.mean(0))
            merged[slot.name] = np.asarray(middle).astype(slot.dtype)
        return merged

    def record(self, vector: NDArray, buffers: Mapping[str, NDArray] | None = None) -> ArrayRecord:
        """The arrays for a flat vector of parameters, named and ordered as they were sent out."""
        out = ArrayRecord()
        for slot in self.slots:
            if slot.start < 0:
                value = self._reference[slot.name] if buffers is None else buffers[slot.name]
            else:
                value = vector[slot.start : slot.start + slot.size].reshape(slot.shape).astype(slot.dtype, copy=False)
            out[slot.name] = Array(np.ascontiguousarray(value).reshape(slot.shape))
        return out

    def moved(self, delta: NDArray, buffers: Mapping[str, NDArray] | None = None) -> ArrayRecord:
        """The arrays that were sent out plus `delta`, computed in each array's own precision."""
        out = ArrayRecord()
        for slot in self.slots:
            if slot.start < 0:
                value = self._reference[slot.name] if buffers is None else buffers[slot.name]
            else:
                step = delta[slot.start : slot.start + slot.size].reshape(slot.shape)
                value = (self._reference[slot.name] + step).astype(slot.dtype)
            out[slot.name] = Array(np.ascontiguousarray(value).reshape(slot.shape))
        return out
