"""Replies of a hostile node, drawn at random: damaged headers, bodies, names, metrics and counts."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from tests.integrations.flower_fakes import failure, instruction, reply

MODEL = {
    "layer.weight": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
    "layer.bias": np.zeros(4, np.float32),
    "norm.running_var": np.ones(3, np.float32),
    "norm.num_batches_tracked": np.asarray(7),
}

# Headers that once ended a federation, or are made to.
HEADERS = (
    "{'descr': '",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }",
    f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1, ' * 100}), }}",
    f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'9' * 5000},), }}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 999999999999999999), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '<f4', 'fortran_order': 3, 'shape': (4,), }",
    "{'descr': '<f4', 'shape': (4,), }",
    "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (4,), }",
    "(" * 3000,
    "{" + "-" * 3000 + "1: 2}",
    "\udcff\x00",
    "",
)
COUNTS = (0, -1, float("nan"), float("inf"), -float("inf"), 1e308, 2**63 - 1, 5e-324, [3, 4], [], 10**400)


def honest(rng: random.Random) -> dict[str, np.ndarray]:
    step = np.float32(rng.gauss(0, 0.01))
    moved = {name: value - step for name, value in MODEL.items() if name.startswith("layer")}
    return moved | {"norm.running_var": MODEL["norm.running_var"], "norm.num_batches_tracked": np.asarray(8)}


def fuzzed(rng: random.Random, node: int) -> list[Message]:
    """One reply that is spoiled somewhere, or several."""
    return rng.choice(SPOILERS)(rng, node)


def _arrays(rng: random.Random, spoil: Callable[[bytes], bytes]) -> ArrayRecord:
    arrays = {name: Array(value) for name, value in honest(rng).items()}
    name = rng.choice(list(arrays))
    old = arrays[name]
    arrays[name] = Array(old.dtype, old.shape, old.stype, spoil(old.data))
    return ArrayRecord(arrays)


def _header_damage(rng: random.Random, node: int) -> list[Message]:
    def spoil(data: bytes) -> bytes:
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5, 30))):
            damaged[rng.randrange(min(len(damaged), 128))] = rng.randrange(256)
        return bytes(damaged)

    return [reply(node, _arrays(rng, spoil))]


def _header_made(rng: random.Random, node: int) -> list[Message]:
    def spoil(data: bytes) -> bytes:
        text = rng.choice(HEADERS).encode("utf-8", "surrogateescape")
        length = rng.choice((len(text), len(text), 0, 65535, rng.randrange(65536)))
        version = rng.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x09"))
        size = length.to_bytes(2 if version[0] == 1 else 4, "little")
        return b"\x93NUMPY" + version + size + text + rng.randbytes(rng.choice((0, 16, 48)))

    return [reply(node, _arrays(rng, spoil))]


def _body_damage(rng: random.Random, node: int) -> list[Message]:
    def spoil(data: bytes) -> bytes:
        cut = rng.randrange(len(data) + 1)
        return rng.choice((data[:cut], data[cut:], data + rng.randbytes(cut), data[:128] + rng.randbytes(cut), b""))

    return [reply(node, _arrays(rng, spoil))]


def _values(rng: random.Random, node: int) -> list[Message]:
    arrays = honest(rng)
    name = rng.choice(list(arrays))
    odd = rng.choice((np.nan, np.inf, -np.inf, 3e38, -1e19, 1e-45, -1, 2**62))
    shape = rng.choice((arrays[name].shape, (), (0,), (1,) * 20, (4, 3), (3,)))
    kind = rng.choice((arrays[name].dtype, np.float64, np.float16, np.int8, np.bool_, np.complex64, "<U3", "S5", ">f4"))
    with np.errstate(all="ignore"):
        arrays[name] = np.full(shape, odd).astype(kind)
    return [reply(node, arrays)]


def _names(rng: random.Random, node: int) -> list[Message]:
    arrays: dict[str, Array] = {name: Array(value) for name, value in honest(rng).items()}
    name = rng.choice(list(arrays))
    taken = arrays.pop(name)
    other = rng.choice(("", "\x00", "x" * 100_000, "layer.weight\nnode 7 set aside: nothing", "é", name.upper()))
    if rng.random() < 0.7:
        arrays[other] = taken
    if rng.random() < 0.3:
        arrays[name] = Array("float32", (4,), rng.choice(("", "pickle", "torch", "numpy.ndarray" * 99)), taken.data)
    return [reply(node, ArrayRecord(arrays))]


def _metrics(rng: random.Random, node: int) -> list[Message]:
    odd = rng.choice((float("nan"), float("inf"), 1e308, -(2**63), 10**400, [], [1.0] * 50, [float("nan")]))
    name = rng.choice(("loss", "", "x" * 10_000, "num-examples ", "kept-nodes"))
    return [reply(node, honest(rng), metrics={name: odd})]


def _counts(rng: random.Random, node: int) -> list[Message]:
    return [reply(node, honest(rng), examples=rng.choice(COUNTS))]


def _records(rng: random.Random, node: int) -> list[Message]:
    arrays = reply(node, honest(rng)).content["arrays"]
    parts = {"a": arrays, "b": arrays, "m": MetricRecord({"num-examples": 3}), "n": MetricRecord({"loss": 1.0})}
    chosen = {name: part for name, part in parts.items() if rng.random() < 0.5}
    return [Message(RecordDict(chosen), reply_to=instruction(node, ArrayRecord()))]


def _several(rng: random.Random, node: int) -> list[Message]:
    return [*fuzzed(rng, node), rng.choice((failure(node, "\x1b[2J" + "?" * 9999), reply(node, honest(rng))))]


SPOILERS = (_header_damage, _header_made, _body_damage, _values, _names, _metrics, _counts, _records, _several)
