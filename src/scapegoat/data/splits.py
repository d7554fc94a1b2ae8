"""Who holds which records: training shards, targets, mask pool, server validation and test set, pairwise disjoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scapegoat.data.base import Dataset, DataSpec
from scapegoat.data.partitions import Partition
from scapegoat.errors import InputError
from scapegoat.randomness import numpy_generator

TEST_SHARE = 0.2


@dataclass(frozen=True)
class Splits:
    """Row numbers in the data set.

    `shards[c]` is the training data of benign client c. `members` were drawn evenly from the shards (`member_clients`
    says from whose). Shards, `non_members`, `mask`, `validation` and `test` are pairwise disjoint.
    """

    shards: tuple[Tensor, ...]
    members: Tensor
    member_clients: Tensor
    non_members: Tensor
    mask: Tensor
    validation: Tensor
    test: Tensor
    wrong_labels: Tensor

    @property
    def targets(self) -> Tensor:
        """Members first, then non-members. Attacks see them shuffled."""
        return torch.cat([self.members, self.non_members])


def split(
    dataset: Dataset, spec: DataSpec, *, partition: Partition, benign: int, targets: int, mask: int, seed: int
) -> Splits:
    """Draw all splits from the seed. Refuses, in one line, what the data set is too small for."""
    rng = numpy_generator(seed, "splits")
    total = len(dataset)
    labels = dataset.y.numpy()
    if dataset.published_test:
        development = rng.permutation(total - dataset.published_test)
        test = total - dataset.published_test + rng.permutation(dataset.published_test)
    else:
        order = rng.permutation(total)
        held = spec.test if spec.test is not None else round(TEST_SHARE * total)
        test, development = order[:held], order[held:]
    if spec.test is not None:
        if spec.test > len(test):
            raise InputError(f"data.test: {spec.test} test records asked for, but {dataset.name} has {len(test)}")
        test = test[: spec.test]

    non_member_count, member_count = targets // 2, targets - targets // 2
    needed = max(benign, member_count)
    spare = len(development) - non_member_count - mask - spec.validation
    wanted = spec.train if spec.train is not None else spare
    if spare < needed or wanted > spare:
        asked = f"data.train asks for {wanted}" if spare >= needed else f"the clients and targets need {needed}"
        raise InputError(
            f"data: {dataset.name} has {len(development)} records besides the test set; {non_member_count} non-member "
            f"targets, {mask} mask and {spec.validation} validation records leave {max(spare, 0)} for training, "
            f"but {asked} (fewer attack.targets, attack.mask or data.validation, or more records)"
        )
    if wanted < needed:
        raise InputError(
            f"data.train: {wanted} training records are too few for {benign} benign clients and {member_count} member "
            f"targets (at least {needed})"
        )
    cuts = np.cumsum([non_member_count, mask, spec.validation, wanted])
    non_members, mask_rows, validation, train = np.split(development, cuts)[:4]
    positions = partition.split(labels[train], dataset.classes, benign, rng)
    shards = [train[p] for p in positions]
    members, owners = _even_draw(shards, member_count, rng)
    target_rows = np.concatenate([members, non_members])
    wrong = rng.integers(0, max(dataset.classes - 1, 1), len(target_rows))
    wrong = wrong + (wrong >= labels[target_rows])
    as_tensor = torch.from_numpy
    return Splits(
        shards=tuple(as_tensor(s) for s in shards),
        members=as_tensor(members),
        member_clients=as_tensor(owners),
        non_members=as_tensor(non_members),
        mask=as_tensor(mask_rows),
        validation=as_tensor(validation),
        test=as_tensor(test),
        wrong_labels=as_tensor(wrong),
    )


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
