"""Membership by coins: nothing but the coin decides whether a target is trained on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from scapegoat.data.base import Dataset, DataSpec
from scapegoat.data.partitions import registry as partitions
from scapegoat.data.splits import LEAST_OF_CLASS, class_quotas, split
from scapegoat.errors import InputError

PARTITIONS = {
    "iid": partitions.get("iid"),
    "label_bias": partitions.get("label_bias", beta=0.9),
    "dirichlet": partitions.get("dirichlet", alpha=0.1),
}
SKEWED = (0.5, 0.3, 0.15, 0.04, 0.01)


def make(records, published_test=0, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.integers(0, 2, (records, 4), dtype=np.uint8))
    labels = rng.choice(len(SKEWED), records, p=SKEWED)
    return Dataset("toy", x, torch.from_numpy(labels), len(SKEWED), published_test)


def draw(data, partition="iid", *, benign=6, targets=100, mask=40, seed=0, reference=0, design="coin", **options):
    return split(
        data,
        DataSpec(validation=20, **options),
        partition=PARTITIONS[partition],
        benign=benign,
        targets=targets,
        mask=mask,
        seed=seed,
        design=design,
        reference=reference,
    )


@given(
    records=st.integers(300, 700),
    published=st.sampled_from([0, 50]),
    targets=st.integers(2, 120),
    benign=st.integers(1, 20),
    partition=st.sampled_from(sorted(PARTITIONS)),
    seed=st.integers(0, 20),
    reference=st.integers(0, 3),
)
@settings(deadline=None, max_examples=80)
def test_the_parts_are_disjoint_and_of_the_sizes_asked_for(
    records, published, targets, benign, partition, seed, reference
):
    data = make(records, published)
    parts = draw(data, partition, benign=benign, targets=targets, seed=seed, reference=reference)
    rows = torch.cat([*parts.shards, parts.non_members, parts.mask, parts.validation, parts.test]).tolist()
    assert len(rows) == len(set(rows))
    assert len(parts.targets) == len(set(parts.targets.tolist())) == targets
    even = draw(data, partition, benign=benign, targets=targets, seed=seed, design="even")
    assert parts.mask.tolist() == even.mask.tolist()
    assert parts.validation.tolist() == even.validation.tolist()
    assert all(len(shard) for shard in parts.shards)
    shards = [set(shard.tolist()) for shard in parts.shards]
    for row, owner, member in zip(
        parts.targets.tolist(), parts.target_clients.tolist(), parts.member.tolist(), strict=True
    ):
        assert (row in shards[owner]) == member
    assert (parts.wrong_labels != data.y[parts.targets]).all()


@pytest.mark.parametrize("partition", PARTITIONS)
def test_whatever_is_known_of_a_target_it_is_a_member_by_a_fair_coin(partition):
    data = make(900)
    tosses: dict[tuple[str, int], list[int]] = {}
    for seed in range(120):
        parts = draw(data, partition, seed=seed)
        known = {
            "class": data.y[parts.targets].tolist(),
            "client": parts.target_clients.tolist(),
            "place": (torch.arange(100) // 10).tolist(),
            "wrong label": parts.wrong_labels.tolist(),
            "record": (parts.targets // 100).tolist(),
            "feature": data.x[parts.targets].float().sum(1).int().tolist(),
        }
        for what, values in known.items():
            for value, member in zip(values, parts.member.tolist(), strict=True):
                tosses.setdefault((what, value), []).append(member)
    worst = 1.0
    for of_kind in tosses.values():
        heads, all_ = sum(of_kind), len(of_kind)
        worst = min(worst, 2 * min(binom.cdf(heads, all_, 0.5), binom.sf(heads - 1, all_, 0.5)))
    assert worst * len(tosses) > 1e-4, worst


def test_members_share_of_a_target_over_the_references_is_a_fair_coin_too():
    data = make(900)
    members = np.stack([draw(data, reference=k).member.numpy() for k in range(200)])
    heads = members.sum(0)
    assert 2 * min(binom.cdf(heads.min(), 200, 0.5), binom.sf(heads.max() - 1, 200, 0.5)) * 100 > 1e-4
    # Independent between targets: the number of members varies as that of independent coins.
    assert 10 < members.sum(1).var() < 50


def test_a_reference_differs_in_its_coins_alone():
    data = make(900)
    one, other = draw(data, reference=0), draw(data, reference=1)
    assert one.member.tolist() != other.member.tolist()
    for same in ("targets", "target_clients", "wrong_labels", "mask", "validation", "test"):
        assert getattr(one, same).tolist() == getattr(other, same).tolist()
    for before, after in zip(one.shards, other.shards, strict=True):
        untouched = set(before.tolist()) - set(one.targets.tolist())
        assert untouched == set(after.tolist()) - set(one.targets.tolist())


def test_the_training_records_are_as_many_as_asked_for_on_average():
    data = make(900)
    sizes = [sum(len(s) for s in draw(data, reference=k, train=300).shards) for k in range(100)]
    assert abs(np.mean(sizes) - 300) < 3  # standard deviation of the mean: 0.5


@pytest.mark.parametrize("partition", PARTITIONS)
def test_rare_classes_and_every_client_have_targets(partition):
    data = make(4000)
    parts = draw(data, partition, targets=300, benign=9)
    pool = torch.cat([*parts.shards, parts.non_members])
    there = torch.bincount(data.y[pool], minlength=5)
    drawn = torch.bincount(data.y[parts.targets], minlength=5)
    # One record per client is kept back.
    assert (drawn >= (there - 9).clamp(0, LEAST_OF_CLASS)).all()
    held = np.array([len(s) for s in parts.shards])
    targets = torch.bincount(parts.target_clients, minlength=9).numpy()
    assert (targets[held > 5] > 0).all()
    if partition == "iid":
        assert targets.max() - targets.min() <= 1


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=12), share=st.floats(0, 1))
def test_class_quotas_add_up_and_no_class_gives_more_than_it_has(sizes, share):
    sizes = np.array(sizes)
    count = int(share * sizes.sum())
    quotas = class_quotas(sizes, count)
    assert quotas.sum() == count
    assert (quotas >= 0).all()
    assert (quotas <= sizes).all()
    if np.minimum(sizes, LEAST_OF_CLASS).sum() <= count:
        assert (quotas >= np.minimum(sizes, LEAST_OF_CLASS)).all()


@pytest.mark.parametrize(
    ("options", "targets", "says"),
    [({}, 700, "need 356"), ({"train": 50}, 100, "data.train: 50"), ({"test": 500}, 100, "500 test")],
)
def test_too_few_records_are_refused_in_one_line(options, targets, says):
    with pytest.raises(InputError) as error:
        draw(make(600), targets=targets, **options)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
