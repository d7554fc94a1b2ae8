"""Who holds which records: training shards, targets, mask pool, server validation and test set, pairwise disjoint."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from scapegoat.data.base import Dataset, DataSpec
from scapegoat.data.partitions import Partition
from scapegoat.errors import InputError
from scapegoat.randomness import numpy_generator
from scapegoat.tasks import Classification

MOST_TEST = 2_000
"""A share found on so many has a standard error of at most 0.011. More make every evaluated round slower: the 7,178
pictures of FER2013 took 260 seconds, 500 of them 15."""
LEAST_TEST = 0.1
"""Share of the records that are tested on, at the least, where no test set was set aside: fewer measure nothing."""
LEAST_OF_CLASS = 40
"""Targets per class, where there are so many, under the coin design: what is said of a rare class rests on them."""


Design = Literal["even", "coin"]


@dataclass(frozen=True)
class Splits:
    """Row numbers in the data set.

    `shards[c]` is the training data of benign client c. `member` says which of the `targets` were trained on, and
    `target_clients` whose they are: whose shard holds a member and, where coins were tossed, from whose shard a
    non-member was taken (else -1). `coins` says that independent fair coins made the members. Shards,
    `non_members`, `mask`, `validation` and `test` are pairwise disjoint.
    """

    shards: tuple[Tensor, ...]
    targets: Tensor
    member: Tensor
    target_clients: Tensor
    mask: Tensor
    validation: Tensor
    test: Tensor
    wrong_labels: Tensor
    coins: bool = False

    @property
    def members(self) -> Tensor:
        """The targets that were trained on."""
        return self.targets[self.member]

    @property
    def non_members(self) -> Tensor:
        """The targets that nobody trained on."""
        return self.targets[~self.member]


WrongTargets = Callable[[Tensor, int, np.random.Generator], Tensor]
"""From true labels, the number of classes and chance to a wrong target each."""


def _another_class(y: Tensor, classes: int, rng: np.random.Generator) -> Tensor:
    return Classification().wrong(y, classes, rng)


def split(
    dataset: Dataset,
    spec: DataSpec,
    *,
    partition: Partition,
    benign: int,
    targets: int,
    mask: int,
    seed: int,
    design: Design = "even",
    reference: int = 0,
    wrong_targets: WrongTargets = _another_class,
) -> Splits:
    """Draw all splits from the seed. Refuses, in one line, what the data set is too small for.

    Half of the records are trained on unless the spec says otherwise, as membership studies have it; where the
    publisher set no test set aside, all that nobody else holds is the test set, a tenth of the records at the least
    unless the spec is content with fewer.

    `even`: the members are drawn evenly from the shards, as many non-members from a pool of their own.
    `coin`: the shards are dealt out first, with as many records more as there will be non-members; targets are drawn
    from them, each class (or group, where labels are not classes) and client covered, and only then a fair coin per
    target decides whether it stays in its shard. So nothing about a record, its class or its owner tells whether it is
    a member. The coins are those of (seed, reference); everything else is the same for every reference.
    """
    rng = numpy_generator(seed, "splits")
    strata, groups = dataset.grouped
    labels = strata.numpy()
    non_member_count, member_count = targets // 2, targets - targets // 2
    # Under the coin design every client keeps a record that is nobody's target, so that no coins can empty its shard.
    needed = max(benign, member_count) if design == "even" else benign + member_count
    development = rng.permutation(len(dataset) - dataset.published_test)
    held_out = non_member_count + mask + spec.validation
    least_test = 0 if dataset.published_test else spec.test or max(1, int(LEAST_TEST * len(dataset)))
    spare = len(development) - held_out - least_test
    if spare < needed:
        raise InputError(
            f"data: {len(development)} records ({dataset.name}); {non_member_count} non-member targets, {mask} mask, "
            f"{spec.validation} validation and {least_test} test records leave {max(spare, 0)} for training, but "
            f"{benign} benign clients with {member_count} member targets need {needed} (more records, or fewer "
            f"attack.targets, attack.mask, data.validation or data.test)"
        )
    wanted = spec.train if spec.train is not None else max(needed, min(len(dataset) // 2, spare))
    if not needed <= wanted <= spare:
        raise InputError(
            f"data.train: {wanted} is not allowed for {dataset.name} ({needed} to {spare}: {benign} benign clients and "
            f"{member_count} member targets need the first, {held_out + least_test} records held out leave the second)"
        )
    cuts = np.cumsum([non_member_count, mask, spec.validation, wanted])
    non_members, mask_rows, validation, train, rest = np.split(development, cuts)
    test = len(development) + rng.permutation(dataset.published_test) if dataset.published_test else rest
    if spec.test is not None:
        if spec.test > len(test):
            raise InputError(
                f"data.test: {spec.test} is not allowed, {len(test)} test records are left ({dataset.name})"
            )
        test = test[: spec.test]
    pool = train if design == "even" else np.concatenate([non_members, train])
    positions = partition.split(labels[pool], groups, benign, rng)
    shards = [pool[p] for p in positions]
    if design == "even":
        members, owners = _even_draw(shards, member_count, rng)
        rows = np.concatenate([members, non_members])
        owners = np.concatenate([owners, np.full(non_member_count, -1)])
        member = np.arange(targets) < member_count
    else:
        rows, owners = _covering_draw(shards, labels, groups, targets, rng)
        member = numpy_generator(seed, "coins", reference).random(targets) < 0.5
        shards = [shard[~np.isin(shard, rows[~member])] for shard in shards]
    as_tensor = torch.from_numpy
    wrong = wrong_targets(dataset.y[as_tensor(rows)], dataset.classes, rng)
    return Splits(
        shards=tuple(as_tensor(s) for s in shards),
        targets=as_tensor(rows),
        member=as_tensor(member),
        target_clients=as_tensor(owners),
        mask=as_tensor(mask_rows),
        validation=as_tensor(validation),
        test=as_tensor(test),
        wrong_labels=wrong,
        coins=design == "coin",
    )


def _covering_draw(
    shards: list[np.ndarray], labels: np.ndarray, classes: int, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """`count` records of the shards that cover rare classes and all clients; and whose they are.

    Every class has `LEAST_OF_CLASS` of them, or as many as it has, before the rest is shared out in proportion to the
    classes' sizes. Within a class the client with the fewest targets so far is next. One record per client, of a
    class that is common, is never drawn.
    """
    rows = np.concatenate(shards)
    owners = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
    order = rng.permutation(len(rows))
    sizes = np.bincount(labels[rows], minlength=classes)
    commonest_first = order[np.argsort(-sizes[labels[rows[order]]], kind="stable")]
    _, kept_back = np.unique(owners[commonest_first], return_index=True)
    order = np.setdiff1d(order, commonest_first[kept_back], assume_unique=True)
    order = rng.permutation(order)
    quotas = class_quotas(np.bincount(labels[rows[order]], minlength=classes), count)
    drawn: list[int] = []
    load = np.zeros(len(shards), dtype=np.int64)
    for label in np.argsort(sizes, kind="stable"):  # who holds a rare class has no choice: the common ones even it out
        of_class = order[labels[rows[order]] == label]
        waiting = {int(c): list(of_class[owners[of_class] == c]) for c in np.unique(owners[of_class])}
        heap = [(int(load[c]), c) for c in waiting]
        heapq.heapify(heap)
        for _ in range(int(quotas[label])):
            _, client = heapq.heappop(heap)
            drawn.append(int(waiting[client].pop()))
            load[client] += 1
            if waiting[client]:
                heapq.heappush(heap, (int(load[client]), client))
    chosen = np.array(drawn, dtype=np.int64)
    return rows[chosen], owners[chosen]


def class_quotas(sizes: np.ndarray, count: int) -> np.ndarray:
    """How many of each class are drawn: `LEAST_OF_CLASS` or all there are, the rest in proportion to what is left.

    Examples
    --------
    >>> class_quotas(np.array([5, 1000, 3000]), 200)
    array([  5,  68, 127])
    """
    floor = np.minimum(sizes, LEAST_OF_CLASS)
    if floor.sum() >= count:
        return _shared_out(floor, np.ones(len(sizes)), count)
    left = sizes - floor
    return np.asarray(floor + _shared_out(left, left.astype(np.float64), count - int(floor.sum())))


def _shared_out(room: np.ndarray, weight: np.ndarray, count: int) -> np.ndarray:
    """`count` units in proportion to `weight`, at most `room` each; what rounding leaves goes to the largest rests."""
    share = np.zeros(len(room))
    open_ = room > 0
    while True:  # who is full gives what is too much to the others
        left = count - share[~open_].sum()
        share[open_] = left * weight[open_] / max(weight[open_].sum(), 1e-300)
        full = open_ & (share >= room)
        if not full.any():
            break
        share[full] = room[full]
        open_ &= ~full
    whole = np.floor(share + 1e-9).astype(np.int64)
    rest = np.argsort(-(share - whole), kind="stable")
    whole[rest[: count - int(whole.sum())]] += 1
    return whole


def _even_draw(shards: list[np.ndarray], count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """`count` records, as evenly from the shards as their sizes allow; and whose they are."""
    sizes = np.array([len(s) for s in shards])
    quota = np.zeros(len(shards), dtype=np.int64)
    order = rng.permutation(len(shards))
    left = count
    while left:
        open_ = [c for c in order if quota[c] < sizes[c]]
        share = max(left // len(open_), 1)
        for c in open_[: left if share == 1 else None]:
            take = min(share, int(sizes[c] - quota[c]), left)
            quota[c] += take
            left -= take
    rows = [rng.choice(s, q, replace=False) for s, q in zip(shards, quota, strict=True)]
    owners = np.repeat(np.arange(len(shards)), quota)
    return np.concatenate(rows), owners
