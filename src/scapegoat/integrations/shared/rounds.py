"""One round of a live federation as data: the replies that can be used, the others by name, and what the rule did."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from scapegoat.errors import RunError
from scapegoat.integrations.shared.faults import MalformedReplyError, NDArray, fault, plain
from scapegoat.integrations.shared.layout import Layout, ReplyKind

# How a framework names a participant: Flower by number, NVIDIA FLARE by name.
Node = int | str


@dataclass(frozen=True)
class Reply:
    """What a node sent: its arrays as they came, and the weight that it gives itself.

    `kind` is what the arrays are, where the reply says so itself.
    """

    node: Node
    arrays: Mapping[str, Any]
    examples: float
    content: Any = None
    kind: ReplyKind | None = None


@dataclass
class RoundReport:
    """What happened in a `round`. `nodes`, `kept` and `norms` are aligned: the rows that the rule saw, in its order.

    `set_aside` and `failed` give the reason for each whose reply could not be used, or that answered with an error;
    `silent` are those from whom nothing came. `notes` are the rule's, `skipped` says why a round changed nothing.

    Examples
    --------
    >>> report = RoundReport(1, nodes=(11, 12, 13), kept=(True, True, False), norms=(1.0, 1.1, 9.0))
    >>> report.kept_nodes, report.dropped_nodes
    ([11, 12], [13])
    """

    round: int
    nodes: tuple[Node, ...] = ()
    kept: tuple[bool, ...] = ()
    norms: tuple[float, ...] = ()
    set_aside: dict[Node, str] = field(default_factory=dict)
    failed: dict[Node, str] = field(default_factory=dict)
    silent: tuple[Node, ...] = ()
    notes: dict[str, float] = field(default_factory=dict)
    skipped: str | None = None

    @property
    def kept_nodes(self) -> list[Node]:
        """Whose update entered the aggregate."""
        return [node for node, kept in zip(self.nodes, self.kept, strict=True) if kept]

    @property
    def dropped_nodes(self) -> list[Node]:
        """Whose update the rule saw and left out."""
        return [node for node, kept in zip(self.nodes, self.kept, strict=True) if not kept]


# Told about every round of every strategy in this process: the report, and the updates [n, d] that the rule saw.
Observer = Callable[[RoundReport, Tensor], None]
observers: list[Observer] = []


def checked_weight(name: str, value: Any) -> float:
    """A weight as a finite number of at least 0, or MalformedReplyError."""
    try:
        weight = float(value)
    except (TypeError, ValueError, OverflowError):
        weight = math.nan
    if not math.isfinite(weight) or weight < 0:
        raise MalformedReplyError(f"{name} = {plain(value, 40)}")
    return weight


def without_duplicates(replies: Iterable[Reply], layout: Layout, aside: dict[Node, str]) -> list[Reply]:
    """One reply per node. Equal copies count once; a node that contradicts itself is set aside, whatever came first."""
    by_node: defaultdict[Node, list[Reply]] = defaultdict(list)
    for reply in replies:
        by_node[reply.node].append(reply)
    single = []
    for node, copies in by_node.items():
        if all(_same(copies[0], other, layout) for other in copies[1:]):
            single.append(copies[0])
        else:
            aside[node] = f"{len(copies)} replies that contradict each other"
    return single


def _same(one: Reply, other: Reply, layout: Layout) -> bool:
    try:
        return one.examples == other.examples and layout.same(one.arrays, other.arrays)
    except Exception:  # one reply never ends a round
        return False


@dataclass(frozen=True)
class ReplyRows:
    """The usable replies as one matrix, in order: `updates` [n, d] float32; of each reply its buffers too."""

    replies: list[Reply]
    buffers: list[dict[str, NDArray]]
    updates: NDArray
    norms: tuple[float, ...]


def stack(replies: Sequence[Reply], layout: Layout, kind: ReplyKind, aside: dict[Node, str]) -> ReplyRows:
    """Read the replies straight into the rows of one matrix; the malformed ones go to `aside` with the reason."""
    updates = np.empty((len(replies), layout.d), dtype=np.float32)

    def fill(row: int) -> tuple[float, dict[str, NDArray]] | str:
        try:
            # Opened here and let go again: replies that lie on a disk are not all in memory at once.
            arrays = layout.open(replies[row].arrays)
            sent = replies[row].kind or kind
            return layout.write_update(arrays, updates[row], sent), layout.buffers_of(arrays, sent)
        except Exception as error:  # one reply never ends a round
            return fault(error)

    # NumPy lets go of the interpreter lock inside a block, so that rows are filled side by side.
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 8)) as pool:
        outcomes = list(pool.map(fill, range(len(replies))))
    rows = ReplyRows([], [], updates, ())
    norms: list[float] = []
    for row, (reply, outcome) in enumerate(zip(replies, outcomes, strict=True)):
        if isinstance(outcome, str):
            aside[reply.node] = outcome
            continue
        if len(norms) < row:
            updates[len(norms)] = updates[row]
        norms.append(math.sqrt(outcome[0]))
        rows.replies.append(reply)
        rows.buffers.append(outcome[1])
    return ReplyRows(rows.replies, rows.buffers, updates[: len(norms)], tuple(norms))


def client_number(name: str) -> int:
    """A number for a client's name: the number itself where it is one."""
    return int(name) if name.isdecimal() else int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


def no_progress(history: Sequence[RoundReport]) -> str | None:
    """Why a run hands out no trained model: none of its rounds changed it. None if one did, or there was none."""
    if not history or any(report.skipped is None for report in history):
        return None
    return (
        f"no round of {len(history)} changed the model; the last one: {history[-1].skipped} "
        "(the log names every reply that was not used)"
    )


def require_progress(history: Sequence[RoundReport]) -> None:
    """End a run in which no round changed the model: what it would hand out is not a trained model."""
    if nothing := no_progress(history):
        raise RunError(nothing)


def remarks(report: RoundReport, who: str = "node") -> list[tuple[int, str]]:
    """What a log says of a round, line by line with its level: whoever was not used, and why."""
    lines = [
        *((logging.WARNING, f"{who} {node} failed: {why}") for node, why in _sorted(report.failed)),
        *((logging.WARNING, f"{who} {node} set aside: sent {why}") for node, why in _sorted(report.set_aside)),
    ]
    if report.skipped is not None:
        lines.append((logging.WARNING, f"the global model stays as it is: {report.skipped}"))
    elif report.dropped_nodes:
        names = ", ".join(str(node) for node in report.dropped_nodes)
        lines.append(
            (logging.INFO, f"the rule kept {sum(report.kept)} of {len(report.kept)} updates; left out: {names}")
        )
    return [(level, f"round {report.round}: {text}") for level, text in lines]


def _sorted(reasons: Mapping[Node, str]) -> list[tuple[Node, str]]:
    return sorted(reasons.items(), key=lambda item: (item[0] if isinstance(item[0], int) else 0, str(item[0])))
