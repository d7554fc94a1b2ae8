"""How the benign training records are shared out among the benign clients."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from scapegoat.registry import Component, Registry

Shards = list[np.ndarray]


class Partition(Component):
    """`split(labels, classes, clients, rng)` gives each client the positions of its records, none left out."""

    def split(self, labels: np.ndarray, classes: int, clients: int, rng: np.random.Generator) -> Shards:
        """One array of positions per client."""
        raise NotImplementedError


registry: Registry[Partition] = Registry("partition", Partition, "scapegoat.data")
register = registry.register


@register("iid")
class IID(Partition):
    """Shuffled, then dealt out in equal shares."""

    def split(self, labels: np.ndarray, classes: int, clients: int, rng: np.random.Generator) -> Shards:
        """Shares differ by at most one record."""
        return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]


@register("label_bias")
class LabelBias(Partition):
    """The paper's groups: label q goes to group q with probability beta, else to another group uniformly.

    With h groups, one per class, group g maps to client floor(n (g + u) / h) with u uniform, so that every client of a
    group receives its records in a balanced manner, and fewer clients than classes work too.
    """

    beta: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of a label's records that go to its own group of clients."""

    def split(self, labels: np.ndarray, classes: int, clients: int, rng: np.random.Generator) -> Shards:
        """Biased towards each client's own labels."""
        count = len(labels)
        other = rng.integers(0, max(classes - 1, 1), count)
        other = other + (other >= labels) if classes > 1 else np.zeros(count, dtype=np.int64)
        group = np.where(rng.random(count) < self.beta, labels, other)
        owner = np.minimum((clients * (group + rng.random(count)) / classes).astype(np.int64), clients - 1)
        return _by_owner(owner, clients, rng)


@register("dirichlet")
class Dirichlet(Partition):
    """Each label's records are shared out in proportions drawn from a Dirichlet distribution (Hsu et al., 2019)."""

    alpha: Annotated[float, Field(gt=0)] = 0.5
    """Concentration: the smaller, the more clients differ."""

    def split(self, labels: np.ndarray, classes: int, clients: int, rng: np.random.Generator) -> Shards:
        """The smaller alpha, the fewer clients share a label."""
        owner = np.zeros(len(labels), dtype=np.int64)
        for label in range(classes):
            rows = np.flatnonzero(labels == label)
            shares = rng.dirichlet(np.full(clients, self.alpha))
            cuts = (np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
            owner[rng.permutation(rows)] = np.repeat(
                np.arange(clients), np.diff(np.concatenate([[0], cuts, [len(rows)]]))
            )
        return _by_owner(owner, clients, rng)


def _by_owner(owner: np.ndarray, clients: int, rng: np.random.Generator) -> Shards:
    # A client without a single record could not take part: it is given one of the largest shard's.
    counts = np.bincount(owner, minlength=clients)
    if len(owner) >= clients:
        for empty in np.flatnonzero(counts == 0):
            giver = int(np.argmax(counts))
            owner[rng.choice(np.flatnonzero(owner == giver))] = empty
            counts[giver] -= 1
            counts[empty] += 1
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owner, minlength=clients))[:-1])
