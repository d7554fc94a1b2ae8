"""One process of a federation: it trains some clients of a round, and holds some columns of all updates."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scapegoat.devices import number
from scapegoat.errors import InputError
from scapegoat.experiments.ray_cluster import settle_in
from scapegoat.experiments.spec import parse
from scapegoat.experiments.staging import Pins, staged
from scapegoat.heap import keep_pages
from scapegoat.kernels.routes import Routes
from scapegoat.modelling.seeding import torch_seeded
from scapegoat.split_rows import LINE, Held, laid_out

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Start:
    """What all clients of a round are told: the models that they start from, the statistics, the routes."""

    round: int
    models: list[Floats]
    buffers: Floats
    routes: dict[str, Any]


class Shard:
    """What runs in the process. Every answer is the same whichever process gives it."""

    def __init__(self) -> None:
        self._models: list[Tensor] = []
        self._round = -1
        self._updates = torch.empty(0, 0)
        self._columns = torch.empty(0, 0)
        self._first = 0
        self._prepared: Any = None

    def join(self, around: dict[str, Any], spec: dict[str, Any], name: str) -> None:
        """Become a part of this federation: the data read, the clients in their seats."""
        settle_in(around)
        parsed = Pins(around["root"]).pinned(parse(spec))
        if parsed.hash != name:
            raise InputError("the data or the model is another one on this machine than where the run was started")
        torch.set_num_threads(parsed.threads)
        keep_pages()
        self._benign = staged(parsed, around["root"]).benign

    def pid(self) -> int:
        """The process, as long as it lives."""
        return os.getpid()

    def hold(self, rows: int, first: int, last: int, d: int, on_disk: bool) -> None:
        """Make room for these columns of so many rows, to be filled."""
        self._first = first
        if self._columns.shape != (rows, last - first):
            self._columns = torch.empty(0, 0)  # let go of the old ones first
            self._columns = laid_out(rows, last - first, d, room_on_disk if on_disk else torch.empty)

    def begin(self, start: Start) -> None:
        """Get ready for a round."""
        model = self._benign.model
        # Copies of the process's own, aligned as the driver's are.
        self._models = [torch.tensor(vector) for vector in start.models]
        model.set_buffers(torch.tensor(start.buffers))
        model.routes = Routes.parse(start.routes)
        self._round = start.round

    def train(self, passes: list[tuple[list[int], int]], row: int) -> list[tuple[float, Any]]:
        """Compute the updates of clients that share passes, each from one of the models; the first is row `row`.

        Returns the sum of the losses and that of the running statistics of every pass.
        """
        d, sizes = self._benign.model.d, [len(clients) for clients, _ in passes]
        # In one process their rows begin here: products may round otherwise elsewhere in a cache line.
        at = row * d % LINE
        self._updates = torch.empty(0, 0)
        self._updates = torch.empty(at + sum(sizes) * d)[at:].view(-1, d)
        answers = []
        with torch_seeded(0):
            before = torch.get_rng_state()
            for (clients, start), out in zip(passes, torch.split(self._updates, sizes), strict=True):
                starts = [self._models[start]] * len(clients)
                loss, statistics = self._benign.totals(self._round, clients, starts, out)
                answers.append((number(loss), packed(statistics)))
            if not torch.equal(torch.get_rng_state(), before):
                raise InputError(
                    "--shards: the model draws random numbers in training (dropout, say), which the clients of one "
                    "process draw one after the other; leave --shards out"
                )
        return answers

    def give(self, first: int, last: int, spans: Sequence[tuple[int, int]]) -> Any:
        """Rows first..last of those just trained: the columns of each span."""
        pieces = [self._updates[first:last, a:b].contiguous().numpy() for a, b in spans]
        return pieces[0] if len(pieces) == 1 else pieces

    def receive(self, rows: list[int], piece: Floats) -> None:
        """Put this shard's columns of some rows where they belong."""
        self._columns.numpy()[rows] = piece

    def each(self, work: Callable[[int, Held], Any], rows: list[int] | None, count: int) -> Any:
        """`work` on the columns held."""
        return packed(work(self._first, self._held(rows, count)))

    def prepare(self, work: Callable[[int, Held], Any], rows: list[int] | None, count: int) -> None:
        """Do this to the columns held and keep the outcome for the next step."""
        self._prepared = work(self._first, self._held(rows, count))

    def step(
        self, total: Any, work: Callable[[Any, int, Any], Any], rows: list[int] | None, count: int, prepared: bool
    ) -> Any:
        """Add to a total that comes from the shard before."""
        held: Any = self._prepared if prepared else self._held(rows, count)
        self._prepared = None
        return packed(work(unpacked(total), self._first, held))

    def _held(self, rows: list[int] | None, count: int) -> Held:
        return self._columns[:count] if rows is None else [self._columns[row] for row in rows]


def room_on_disk(floats: int) -> Tensor:
    """Memory that a file stands for, which nobody else sees and which goes with the process, however it ends."""
    with tempfile.TemporaryFile(prefix="scapegoat-shard-") as file:
        file.truncate(4 * floats)
        return torch.frombuffer(mmap.mmap(file.fileno(), 4 * floats), dtype=torch.float32)


@dataclass(frozen=True)
class _Packed:
    """A tensor on its way: Ray carries the memory of arrays as it is."""

    array: NDArray[Any]


def packed(value: Any) -> Any:
    """The value with arrays in place of tensors, in lists and tuples too."""
    if isinstance(value, Tensor):
        return _Packed(value.contiguous().numpy())
    return type(value)(map(packed, value)) if isinstance(value, list | tuple) else value


def unpacked(value: Any) -> Any:
    """The value with tensors of its own in place of arrays."""
    if isinstance(value, _Packed):
        return torch.from_numpy(value.array.copy())
    return type(value)(map(unpacked, value)) if isinstance(value, list | tuple) else value
