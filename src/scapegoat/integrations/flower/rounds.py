"""One round of a live federation as data: the replies that can be used, the others by name, and what the rule did."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, Message
from torch import Tensor

from scapegoat.integrations.flower.records import Layout, MalformedReplyError, NDArray, ReplyKind


@dataclass(frozen=True)
class Reply:
    """What a node sent: its arrays as they came, and the weight that it gives itself."""

    node: int
    arrays: Mapping[str, Array]
    examples: float
    content: Any = None


@dataclass
class RoundReport:
    """What happened in a round. `nodes`, `kept` and `norms` are aligned: the rows that the rule saw, in its order."""

    round: int
    nodes: tuple[int, ...] = ()
    kept: tuple[bool, ...] = ()
    norms: tuple[float, ...] = ()
    set_aside: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    notes: dict[str, float] = field(default_factory=dict)
    skipped: str | None = None

    @property
    def kept_nodes(self) -> list[int]:
        """Whose update entered the aggregate."""
        return [node for node, kept in zip(self.nodes, self.kept, strict=True) if kept]

    @property
    def dropped_nodes(self) -> list[int]:
        """Whose update the rule saw and left out."""
        return [node for node, kept in zip(self.nodes, self.kept, strict=True) if not kept]


# Told about every round of every strategy in this process: the report, and the updates [n, d] that the rule saw.
Observer = Callable[[RoundReport, Tensor], None]
observers: list[Observer] = []


def read_reply(message: Message, weighted_by_key: str) -> Reply:
    """The reply in a message, or MalformedReplyError."""
    content = message.content
    records = list(content.array_records.values())
    if len(records) != 1:
        raise MalformedReplyError(f"{len(records)} array records where one is wanted")
    examples = read_weight(content, weighted_by_key)
    return Reply(message.metadata.src_node_id, records[0], examples, content)


def read_weight(content: Any, key: str) -> float:
    """The weight that a reply reports about itself, or MalformedReplyError."""
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise MalformedReplyError(f"{len(records)} metric records where one is wanted")
    value = records[0].get(key)
    if value is None or isinstance(value, list):
        raise MalformedReplyError(f"no single metric {key!r}")
    if not math.isfinite(value) or value < 0:
        raise MalformedReplyError(f"{key} = {value}")
    return float(value)


def read_metric(content: Any, key: str) -> float | None:
    """A finite single metric of a reply, if there is one of that name."""
    for record in content.metric_records.values():
        value = record.get(key)
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    return None


def without_duplicates(replies: Iterable[Reply], aside: dict[int, str]) -> list[Reply]:
    """One reply a node. Equal copies count once; a node that contradicts itself is set aside, whatever came first."""
    by_node: defaultdict[int, list[Reply]] = defaultdict(list)
    for reply in replies:
        by_node[reply.node].append(reply)
    single = []
    for node, copies in by_node.items():
        if all(_same(copies[0], other) for other in copies[1:]):
            single.append(copies[0])
        else:
            aside[node] = f"{len(copies)} replies that contradict each other"
    return single


def _same(one: Reply, other: Reply) -> bool:
    return (
        one.examples == other.examples
        and one.arrays.keys() == other.arrays.keys()
        and all(array.data == other.arrays[name].data for name, array in one.arrays.items())
    )


@dataclass(frozen=True)
class Rows:
    """The usable replies as one matrix, in order: `updates` [n, d] float32."""

    replies: list[Reply]
    arrays: list[dict[str, NDArray]]
    updates: NDArray
    norms: tuple[float, ...]


def stack(replies: Sequence[Reply], layout: Layout, kind: ReplyKind, aside: dict[int, str]) -> Rows:
    """Read the replies straight into the rows of one matrix; the malformed ones go to `aside` with the reason."""
    opened: list[tuple[Reply, dict[str, NDArray]]] = []
    for reply in replies:
        try:
            opened.append((reply, layout.open(reply.arrays)))
        except MalformedReplyError as error:
            aside[reply.node] = str(error)
    updates = np.empty((len(opened), layout.d), dtype=np.float32)

    def fill(row: int) -> float | str:
        try:
            return layout.write_update(opened[row][1], updates[row], kind)
        except MalformedReplyError as error:
            return str(error)

    # NumPy lets go of the interpreter lock inside a block, so that rows are filled side by side.
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 8)) as pool:
        outcomes = list(pool.map(fill, range(len(opened))))
    good = [row for row, outcome in enumerate(outcomes) if not isinstance(outcome, str)]
    for (reply, _), outcome in zip(opened, outcomes, strict=True):
        if isinstance(outcome, str):
            aside[reply.node] = outcome
    if len(good) < len(opened):
        updates = updates[good]
    return Rows(
        replies=[opened[row][0] for row in good],
        arrays=[opened[row][1] for row in good],
        updates=updates,
        norms=tuple(math.sqrt(float(outcomes[row])) for row in good),
    )
