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

LEAST_TEST = 0.1
"""Share of the records that are tested on, at the least, where no test set was set aside: fewer measure nothing."""


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
    """Draw all splits from the seed. Refuses, in one line, what the data set is too small for.

    Half of the records are trained on unless the spec says otherwise, as membership studies have it; where the
    publisher set no test set aside, all that nobody else holds is the test set, a tenth of the records at the least
    unless the spec is content with fewer.
    """
    rng = numpy_generator(seed, "splits")
    labels = dataset.y.numpy()
    non_member_count, member_count = targets // 2, targets - targets // 2
    needed = max(benign, member_count)
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
