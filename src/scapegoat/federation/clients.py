"""The benign clients: their data, their batches, their updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from scapegoat.accounting import Exposure
from scapegoat.data import Dataset
from scapegoat.devices import Number
from scapegoat.federation.local import LocalRule, Shard
from scapegoat.models import FlatModel
from scapegoat.randomness import derive


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
        return shard[self.local.draw(len(shard), self.batch_size, derive(self.seed, "batch", round_, client))]

    def updates(self, round_: int, clients: list[int], starts: list[Tensor], out: Tensor) -> tuple[Number, Tensor]:
        """Write each client's update to its row of `out`.

        Returns the mean loss, and the mean of the clients' running statistics (empty for models without any).
        """
        return self.local.updates(*self._given(round_, clients, starts), out)

    def totals(self, round_: int, clients: list[int], starts: list[Tensor], out: Tensor) -> tuple[Number, Tensor]:
        """The same with sums in place of means, for the clients of one of the `passes`."""
        return self.local.totals(*self._given(round_, clients, starts), out)

    def passes(self, clients: list[int], starts: list[Tensor]) -> list[list[int]]:
        """Which of these clients are computed together."""
        return self.local.passes(self.model, starts, self._records(clients), self.batch_size)

    def _records(self, clients: list[int]) -> list[Shard]:
        return [Shard(self.dataset, self.shards[client]) for client in clients]

    def _given(
        self, round_: int, clients: list[int], starts: list[Tensor]
    ) -> tuple[FlatModel, list[Tensor], list[Shard], int, list[int]]:
        """All that the local rule asks for, but where to write."""
        seeds = [derive(self.seed, self.local.purpose, round_, client) for client in clients]
        return self.model, starts, self._records(clients), self.batch_size, seeds

    def privacy(self, picked: Iterable[list[int]]) -> dict[str, Any] | None:
        """What the noise of their training promises their records, given who was picked in each round; None without."""
        mechanism = self.local.training.mechanism
        if mechanism is None:
            return None
        exposures = {}
        for client, rounds in Counter(client for clients in picked for client in clients).items():
            if client < len(self.shards) and (records := len(self.shards[client])):
                steps = rounds * self.local.steps(records, self.batch_size)
                exposures[client] = Exposure(steps, records, min(self.batch_size, records))
        return mechanism.spent(exposures)
