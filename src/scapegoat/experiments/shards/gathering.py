"""The updates of a round, spread over shards: none of them, nor the driver, holds them all."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scapegoat.aggregation import Stack
from scapegoat.chunked_sums import column_spans
from scapegoat.data.formats.memory import available
from scapegoat.data.formats.safe_io import human
from scapegoat.experiments.shards.crew import Crew
from scapegoat.experiments.shards.rows import ShardedRows
from scapegoat.experiments.shards.shard import Start, unpacked
from scapegoat.federation.cast import Cast

log = logging.getLogger("scapegoat.experiments")

SENT_BYTES = 64 << 20
"""What a shard sends of its updates at a time."""

MEMORY_SHARE = 0.5
"""Of what is free on this machine the updates may take so much; if they take more, files stand for their memory."""

UNDER_WAY = 2
"""Such parts of every shard that are under way while the next one is sent."""


@dataclass(frozen=True)
class Bundle:
    """What one shard trains at a time: passes, each of some clients from one of the round's models, for `rows`."""

    passes: list[tuple[list[int], int]]
    rows: list[int]

    @property
    def adjacent(self) -> bool:
        """Whether one process would write it straight to its rows."""
        return self.rows[-1] - self.rows[0] + 1 == len(self.rows)


class InShards:
    """The gathering of a federation whose clients train in shards, each of which then holds columns of all updates."""

    def __init__(self, cast: Cast, crew: Crew) -> None:
        self._benign, self._crew = cast.benign, crew
        self._count, self._d = cast.setting.picked, cast.model.d
        self._spans = column_spans(self._count, self._d, len(crew))
        self._honest = 0
        self._bundles: list[Bundle] = []
        self._start: Any = None
        self._sent: Tensor | None = None
        self._told: set[str] = set()
        size, free = 4.0 * self._count * self._d, available()
        self._on_disk = crew.local and size > MEMORY_SHARE * free
        if self._on_disk:
            where = tempfile.gettempdir()
            log.warning(
                "--shards: %s of updates, %s are free: they are kept in files in %s", human(size), human(free), where
            )
        if cast.setting.updates_per_step != self._count:
            self._tell("updates that wait (federation.schedule.buffer)")

    def train(self, round_: int, clients: list[int], starts: list[Tensor]) -> tuple[float, Tensor]:
        """Each pass in one shard; their losses and statistics are added up in the order of one process."""
        crew, model = self._crew, self._benign.model
        distinct = {id(start): start for start in starts}
        number = {key: place for place, key in enumerate(distinct)}
        passes = self._benign.passes(clients, starts) if clients else []
        self._bundles = _bundled(
            [([clients[row] for row in rows], number[id(starts[rows[0]])], rows) for rows in passes],
            most=min(max(1, SENT_BYTES // (4 * self._d)), -(-len(clients) // len(crew))),
        )
        models = [start.numpy() for start in distinct.values()]
        self._start = crew.ray.put(Start(round_, models, model.buffers().numpy(), model.routes.as_dict()))
        self._honest, self._sent = len(clients), None
        crew.begin_round(self._again)
        found = crew.complete(self._fill)
        if not found:
            return float("nan"), torch.empty(0)
        losses, statistics = 0.0, torch.zeros_like(found[0][1])
        for loss, moved in found:
            losses += loss
            statistics += moved
        return losses / len(clients), statistics / len(clients)

    def honest(self) -> Tensor:
        """All of them, brought here."""
        self._tell("an attack that sees the honest updates")
        return self._rows(self._honest).matrix()

    def send(self, updates: Tensor) -> None:
        """Cut into columns and handed out."""
        self._sent = updates.contiguous()
        self._crew.ask(self._hand_out)

    def matrix(self) -> Tensor:
        """All of them, brought here."""
        self._tell("a server that looks at them (evaluation.server_view)")
        return self._rows(self._count).matrix()

    def stack(self) -> Stack:
        """Where they are."""
        return Stack(self._rows(self._count), torch.ones(self._count, dtype=torch.bool), self._d)

    def _rows(self, count: int) -> ShardedRows:
        return ShardedRows(self._crew, self._spans, count, self._tell)

    def _again(self) -> None:
        """Bring the shards to where they were: what they hold follows from the round's start."""
        self._fill()
        if self._sent is not None:
            self._crew.get(self._hand_out())

    def _fill(self) -> list[tuple[float, Tensor]]:
        """Have every pass trained and every column brought to its shard; losses and statistics, pass by pass."""
        crew, shards = self._crew, self._crew.shards
        ready = [
            shard.hold.remote(self._count, first, last, self._d, self._on_disk)
            for shard, (first, last) in zip(shards, self._spans, strict=False)
        ]
        ready += [shard.begin.remote(self._start) for shard in shards]
        answers: list[Any] = []
        under_way: list[list[Any]] = [ready]
        for wave in range(0, len(self._bundles), len(shards)):
            at_work = list(zip(shards, self._bundles[wave : wave + len(shards)], strict=False))
            for shard, bundle in at_work:
                answers.append(shard.train.remote(bundle.passes, bundle.rows[0] if bundle.adjacent else 0))
            for received in self._exchange(at_work):
                under_way.append(received)
                if len(under_way) > UNDER_WAY:
                    crew.get(under_way.pop(0))
        for received in under_way:
            crew.get(received)
        return [(loss, unpacked(moved)) for answer in crew.get(answers) for loss, moved in answer]

    def _exchange(self, at_work: list[tuple[Any, Bundle]]) -> Iterator[list[Any]]:
        """Bring what the shards have trained to those that hold the columns, some rows at a time."""
        rows = max(1, SENT_BYTES // (4 * self._d))
        for first in range(0, max(len(bundle.rows) for _, bundle in at_work), rows):
            received = []
            for shard, bundle in at_work:
                some = bundle.rows[first : first + rows]
                if some:
                    give = shard.give.options(num_returns=len(self._spans))
                    pieces = give.remote(first, first + len(some), self._spans)
                    received += self._received(some, pieces if isinstance(pieces, list) else [pieces])
            yield received

    def _hand_out(self) -> list[Any]:
        assert self._sent is not None
        rows = list(range(self._honest, self._honest + len(self._sent)))
        return self._received(rows, [self._sent[:, first:last].numpy() for first, last in self._spans])

    def _received(self, rows: list[int], pieces: list[Any]) -> list[Any]:
        return [shard.receive.remote(rows, piece) for shard, piece in zip(self._crew.shards, pieces, strict=False)]

    def _tell(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            size = human(4.0 * self._count * self._d)
            log.warning("--shards: up to %s of updates are brought to one process, for %s", size, why)


def _bundled(passes: list[tuple[list[int], int, list[int]]], most: int) -> list[Bundle]:
    """Neighbouring passes together, as far as they have no more than `most` rows."""
    bundles: list[Bundle] = []
    for clients, start, rows in passes:
        last = bundles[-1] if bundles else None
        together = None if last is None else Bundle([*last.passes, (clients, start)], [*last.rows, *rows])
        if (
            together is not None
            and last is not None
            and last.adjacent
            and together.adjacent
            and len(together.rows) <= most
        ):
            bundles[-1] = together
        else:
            bundles.append(Bundle([(clients, start)], rows))
    return bundles
