"""Flower's records of arrays as flat vectors, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from flwr.app import Array, ArrayRecord

from scapegoat.errors import InputError
from scapegoat.integrations.flower.replies.npy import HEADER_BYTES, view
from scapegoat.integrations.shared import layout
from scapegoat.integrations.shared.faults import MalformedReplyError, NDArray
from scapegoat.integrations.shared.layout import BUFFER_NAMES, BufferMerge

__all__ = ["BUFFER_NAMES", "BufferMerge", "FlowerLayout", "ReplyKind", "arrays_of", "record_of"]

# What Flower's clients send: the arrays after training, or the descent direction itself.
ReplyKind = Literal["arrays", "updates"]


class FlowerLayout(layout.Layout):
    """The layout of a record that was sent out; replies hold `Array`s, whose bytes are read by their grammar."""

    overhead: ClassVar[int] = HEADER_BYTES

    def __init__(self, sent: ArrayRecord, buffers: Sequence[str] = BUFFER_NAMES, any_type: bool = False) -> None:
        arrays = {}
        for name, array in sent.items():
            try:
                arrays[name] = view(array.data)
            except MalformedReplyError as error:
                raise InputError(f"array {name!r} of the global model: {error}") from None
        super().__init__(arrays, buffers, any_type)

    def read(self, name: str, value: Any) -> NDArray:
        """The numbers of an `Array`, without a copy."""
        if value.stype != "numpy.ndarray":
            raise MalformedReplyError(f"array {name!r} serialized as {value.stype[:40]!r}, not as a NumPy array")
        try:
            return view(value.data)
        except MalformedReplyError as error:
            raise MalformedReplyError(f"array {name!r}: {error}") from None

    def size_of(self, value: Any) -> int:
        """Bytes of an `Array`, header included."""
        return len(value.data)

    def same(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Two replies hold the same bytes, headers included."""
        return one.keys() == other.keys() and all(array.data == other[name].data for name, array in one.items())


def arrays_of(record: Mapping[str, Array]) -> dict[str, NDArray]:
    """A record's arrays, without a copy."""
    return {name: view(array.data) for name, array in record.items()}


def record_of(arrays: Mapping[str, NDArray]) -> ArrayRecord:
    """Arrays as Flower's record, in their order."""
    return ArrayRecord(
        {name: Array(np.ascontiguousarray(value).reshape(value.shape)) for name, value in arrays.items()}
    )
