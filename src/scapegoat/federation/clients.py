"""The benign clients: their data, their batches, their updates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from scapegoat.data import Dataset
from scapegoat.federation.local import Epochs, LocalRule, batch_gradient, draw_batch
from scapegoat.gradients import client_gradients
from scapegoat.models import FlatModel
from scapegoat.randomness import derive

TAKEN_FLOATS = 300_000
"""Records that may be taken together whatever the size of the model (1.2 MB): small models gain from long passes."""


@dataclass(frozen=True)
class BenignClients:
    """All benign clients of a federation; client c trains on `shards[c]`."""

    dataset: Dataset
    shards: tuple[Tensor, ...]
    model: FlatModel
    local: LocalRule
    batch_size: int
    seed: int

    def batch(self, round_: int, client: int) -> Tensor:
        """Rows of the data set that the client trains on in a round of `gradient`."""
        shard = self.shards[client]
        return shard[draw_batch(len(shard), self.batch_size, derive(self.seed, "batch", round_, client))]

    def updates(self, round_: int, clients: list[int], starts: list[Tensor], out: Tensor) -> tuple[float, Tensor]:
        """Write each client's update to its row of `out`.

        Returns the mean loss, and the mean of the clients' running statistics (empty for models without any).
        """
        if self.model.has_statistics or isinstance(self.local, Epochs):
            return self._one_by_one(round_, clients, starts, out)
        losses = 0.0
        for start, rows in self._together(starts):
            batches = [self.batch(round_, clients[row]) for row in rows]
            taken = torch.cat(batches)
            target = out[rows[0] : rows[-1] + 1] if rows[-1] - rows[0] + 1 == len(rows) else None
            block = torch.empty(len(rows), out.shape[1]) if target is None else target
            x, y = self.dataset.inputs(taken), self.dataset.y[taken]
            losses += float(sum(client_gradients(self.model, start, x, y, [len(b) for b in batches], block)))
            if target is None:
                out[rows] = block
        return losses / len(clients), torch.empty(0)

    @property
    def at_once(self) -> int:
        """Clients whose records are taken together: no more floats than in an update, unless that is short."""
        record = math.prod(self.dataset.x.shape[1:])
        return max(1, max(self.model.d, TAKEN_FLOATS) // max(1, self.batch_size * record))

    def _together(self, starts: list[Tensor]) -> Iterator[tuple[Tensor, list[int]]]:
        """Rows of clients that may share a pass: they start from the same model, and are not too many."""
        for start, rows in _same_start(starts):
            for first in range(0, len(rows), self.at_once):
                yield start, rows[first : first + self.at_once]

    def _one_by_one(self, round_: int, clients: list[int], starts: list[Tensor], out: Tensor) -> tuple[float, Tensor]:
        losses = 0.0
        before = self.model.buffers()
        statistics = torch.zeros_like(before)
        for row, (client, start) in enumerate(zip(clients, starts, strict=True)):
            self.model.set_buffers(before)
            if isinstance(self.local, Epochs):
                shard = self.shards[client]
                x, y = self.dataset.inputs(shard), self.dataset.y[shard]
                seed = derive(self.seed, "epochs", round_, client)
                losses += self.local.train(self.model, start, x, y, self.batch_size, seed, out[row])
            else:
                taken = self.batch(round_, client)
                x, y = self.dataset.inputs(taken), self.dataset.y[taken]
                losses += batch_gradient(self.model, start, x, y, self.batch_size, out[row])
            statistics += self.model.buffers()
        self.model.set_buffers(before)
        return losses / len(clients), statistics / len(clients)


def _same_start(starts: list[Tensor]) -> list[tuple[Tensor, list[int]]]:
    """Rows grouped by the model that they start from: each group can share a forward pass."""
    groups: dict[int, tuple[Tensor, list[int]]] = {}
    for row, start in enumerate(starts):
        groups.setdefault(id(start), (start, []))[1].append(row)
    return list(groups.values())
