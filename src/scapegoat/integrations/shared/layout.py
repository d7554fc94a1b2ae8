"""Named arrays as flat vectors: what was sent out, what came back, and what is wrong with it."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from scapegoat.errors import InputError
from scapegoat.integrations.shared.faults import MalformedReplyError, NDArray, plain

# What a reply holds: the arrays after training, the descent direction itself, or what training added to the arrays.
ReplyKind = Literal["arrays", "updates", "differences"]
BufferMerge = Literal["mean", "median"]

# What PyTorch's BatchNorm keeps beside its weights. They are statistics, not directions: they never enter a rule.
BUFFER_NAMES = ("*running_mean", "*running_var", "*num_batches_tracked")
# A variance or a count below zero is no statistic of anything, and turns the model's outputs into NaN.
_NEVER_NEGATIVE = ("*running_var", "*num_batches_tracked")

# Bytes of the widest number that a reply may hold, and the largest one that stays a whole number of any type.
_WIDEST = 8
_LARGEST_COUNT = 2.0**62

# Rows are filled in blocks that stay in cache, so that the check for NaN reads nothing twice from memory.
_BLOCK = 1 << 16


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


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class Layout:
    """How the arrays that were sent out lie in one flat vector, and which of them are buffers.

    Arrays of floating-point numbers are parameters, unless their name matches one of `buffers` (shell patterns);
    integers and booleans are buffers always. A reply's arrays are of the types that were sent out; with `any_type`
    of any number type, as frameworks' own strategies take them (they average a count of int64 to one of float64).

    What a framework carries arrays in is opened by a subclass: `read` and `size_of` say how.
    """

    overhead: ClassVar[int] = 0
    """Bytes that an array of a reply may take beside its numbers."""

    def __init__(
        self, sent: Mapping[str, NDArray], buffers: Sequence[str] = BUFFER_NAMES, any_type: bool = False
    ) -> None:
        self.any_type = any_type
        self.slots: list[Slot] = []
        self._reference: dict[str, NDArray] = {}
        self.d = 0
        for name, value in sent.items():
            buffer = value.dtype.kind != "f" or _matches(name, buffers)
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
        widest = _WIDEST if any_type else 0
        self.limit = sum(slot.size * max(slot.dtype.itemsize, widest) + self.overhead for slot in self.slots)

    def read(self, name: str, value: Any) -> NDArray:
        """One array of a reply, without a copy where that is possible, or MalformedReplyError."""
        if not isinstance(value, np.ndarray):
            raise MalformedReplyError(f"array {name!r} as {type(value).__name__}, not as a NumPy array")
        return value

    def size_of(self, value: Any) -> int:
        """Bytes of one array of a reply, found out without opening it."""
        return int(getattr(value, "nbytes", 0))

    def same(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Two replies hold the same bytes."""
        for reply in (one, other):
            self._check_size(reply)
        return one.keys() == other.keys() and all(
            self.read(name, value).tobytes() == self.read(name, other[name]).tobytes() for name, value in one.items()
        )

    def _check_size(self, reply: Mapping[str, Any]) -> None:
        """Refuse a reply of a hundred times the model before anything of it is looked into."""
        size = sum(self.size_of(value) for value in reply.values())
        if size > self.limit:
            raise MalformedReplyError(f"{size} bytes where {self.limit} would hold the model")

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

    def open(self, reply: Mapping[str, Any]) -> dict[str, NDArray]:
        """The arrays of a reply, checked against what was sent out."""
        if missing := [name for name in self._slots if name not in reply]:
            raise MalformedReplyError(f"a partial model: array {missing[0]!r} is missing")
        if extra := [name for name in reply if name not in self._slots]:
            raise MalformedReplyError(f"array {plain(extra[0], 80)!r}, which was not sent out")
        self._check_size(reply)
        arrays = {}
        for name, slot in self._slots.items():
            value = self.read(name, reply[name])
            if value.shape != slot.shape:
                raise MalformedReplyError(f"array {name!r} of shape {value.shape}, sent out as {slot.shape}")
            if value.dtype != slot.dtype and not (
                self.any_type and value.dtype.kind in ("fi" if slot.start >= 0 else "fiub")
            ):
                raise MalformedReplyError(f"array {name!r} of type {value.dtype}, sent out as {slot.dtype}")
            arrays[name] = value
        return arrays

    def write_update(self, arrays: Mapping[str, NDArray], row: NDArray, kind: ReplyKind = "arrays") -> float:
        """Write the update (sent - received, a descent direction) to `row` and return its squared norm.

        With `updates` the reply holds the descent direction itself, with `differences` received - sent. Raises if a
        number in it is NaN, infinite or too large to square.
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
                    elif kind == "differences":
                        np.negative(received[begin:end], out=out, casting="same_kind")
                    else:
                        out[:] = received[begin:end]
                    squares += float(out @ out)
        if not math.isfinite(squares):
            odd = "values too large to square" if bool(np.isfinite(row).all()) else "NaN or infinite values"
            raise MalformedReplyError(odd)
        self.buffers_of(arrays, kind)
        return squares

    def buffers_of(self, arrays: Mapping[str, NDArray], kind: ReplyKind = "arrays") -> dict[str, NDArray]:
        """The buffers that a reply leaves, in the types that were sent out; raises if one is no statistic."""
        found = {}
        for slot in self.buffers:
            value = arrays[slot.name]
            if value.dtype.kind == "f" and not bool(np.isfinite(value).all()):
                raise MalformedReplyError(f"NaN or infinite values in the buffer {slot.name!r}")
            if value.dtype != slot.dtype:
                value = self._as_sent(value, slot)
            if kind == "differences":
                value = self._reference[slot.name] + value
            if slot.dtype.kind in "fi" and _matches(slot.name, _NEVER_NEGATIVE) and bool((value < 0).any()):
                raise MalformedReplyError(f"negative values in the buffer {slot.name!r}")
            found[slot.name] = value
        return found

    def _as_sent(self, value: NDArray, slot: Slot) -> NDArray:
        if slot.dtype.kind in "iu":
            if bool((np.abs(value.astype(np.float64)) > _LARGEST_COUNT).any()):
                raise MalformedReplyError(f"values too large for {slot.dtype} in the buffer {slot.name!r}")
            value = np.rint(value)
        with np.errstate(over="ignore"):
            converted = value.astype(slot.dtype)
        if slot.dtype.kind == "f" and not bool(np.isfinite(converted).all()):
            raise MalformedReplyError(f"values too large for {slot.dtype} in the buffer {slot.name!r}")
        return converted

    def merge_buffers(self, replies: Sequence[Mapping[str, NDArray]], how: BufferMerge) -> dict[str, NDArray]:
        """The buffers of the kept replies as one: their mean or median.

        Whole numbers stay whole: the mean is rounded, and of two values in the middle the median is the lower one, so
        that it is always a number that somebody sent. Clients count alike: a weight that a client reports about itself
        would be a lever.
        """
        if not replies:
            return {slot.name: self._reference[slot.name] for slot in self.buffers}
        merged: dict[str, NDArray] = {}
        for slot in self.buffers:
            stack = np.stack([arrays[slot.name] for arrays in replies])
            if slot.dtype.kind == "f":
                middle = stack.mean(0, dtype=np.float64) if how == "mean" else np.median(stack.astype(np.float64), 0)
            else:
                middle = _whole_mean(stack) if how == "mean" else low_median(stack)
            merged[slot.name] = np.asarray(middle).astype(slot.dtype)
        return merged

    def arrays(self, vector: NDArray, buffers: Mapping[str, NDArray] | None = None) -> dict[str, NDArray]:
        """The arrays for a flat vector of parameters, named and ordered as they were sent out."""
        return self._filled(vector, buffers, lambda slot, part: part)

    def moved(self, delta: NDArray, buffers: Mapping[str, NDArray] | None = None) -> dict[str, NDArray]:
        """The arrays that were sent out plus `delta`, computed in each array's own precision."""
        return self._filled(delta, buffers, lambda slot, step: self._reference[slot.name] + step)

    def _filled(
        self, vector: NDArray, buffers: Mapping[str, NDArray] | None, value: Callable[[Slot, NDArray], NDArray]
    ) -> dict[str, NDArray]:
        """Every array in order: a parameter is the `value` of its slot and part of the vector, a buffer what it is."""
        out = {}
        for slot in self.slots:
            if slot.start < 0:
                found = self._reference[slot.name] if buffers is None else buffers[slot.name]
            else:
                part = vector[slot.start : slot.start + slot.size].reshape(slot.shape)
                found = value(slot, part).astype(slot.dtype, copy=False)
            out[slot.name] = np.ascontiguousarray(found).reshape(slot.shape)
        return out


def low_median(stack: NDArray) -> NDArray:
    """The median of whole numbers over the first axis; of two in the middle the lower one, which somebody sent."""
    return np.asarray(np.sort(stack, 0)[(len(stack) - 1) // 2])


def _whole_mean(stack: NDArray) -> NDArray:
    """The rounded mean of whole numbers over the first axis, exact however large they are."""
    wide = stack if stack.dtype == np.uint64 else stack.astype(np.int64)
    count = wide.dtype.type(len(stack))
    quotient, rest = np.divmod(wide, count)
    rounded = np.rint(rest.sum(0) / len(stack)).astype(wide.dtype)
    mean: NDArray = quotient.sum(0) + rounded
    return mean
