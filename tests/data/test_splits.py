import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.data.base import Dataset, DataSpec, get
from scapegoat.data.partitions import registry as partitions
from scapegoat.data.splits import split
from scapegoat.errors import InputError


def make(records, classes=5, published_test=0, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.integers(0, 2, (records, 8), dtype=np.uint8))
    return Dataset("toy", x, torch.from_numpy(rng.integers(0, classes, records)), classes, published_test)


@given(
    records=st.integers(300, 600),
    published=st.sampled_from([0, 50]),
    targets=st.integers(2, 80),
    mask=st.integers(1, 60),
    benign=st.integers(1, 20),
    partition=st.sampled_from(["iid", "label_bias", "dirichlet"]),
    validation=st.integers(0, 30),
    seed=st.integers(0, 3),
)
@settings(deadline=None, max_examples=60)
def test_splits_are_disjoint_and_members_come_from_the_shards(
    records, published, targets, mask, benign, partition, validation, seed
):
    data = make(records, published_test=published)
    parts = split(
        data,
        DataSpec(validation=validation),
        partition=partitions.get(partition),
        benign=benign,
        targets=targets,
        mask=mask,
        seed=seed,
    )
    groups = [*parts.shards, parts.non_members, parts.mask, parts.validation, parts.test]
    rows = torch.cat(groups).tolist()
    assert len(rows) == len(set(rows))
    assert len(parts.members) + len(parts.non_members) == targets
    assert abs(len(parts.members) - len(parts.non_members)) <= 1
    assert len(parts.mask) == mask
    assert len(set(parts.members.tolist())) == len(parts.members)
    for row, client in zip(parts.members.tolist(), parts.target_clients[parts.member].tolist(), strict=True):
        assert row in parts.shards[client].tolist()
    assert (parts.wrong_labels != data.y[parts.targets]).all()
    assert ((parts.wrong_labels >= 0) & (parts.wrong_labels < data.classes)).all()
    assert len(parts.test)
    if published:
        assert set(parts.test.tolist()) == set(range(records - published, records))


def test_a_tenth_of_the_records_is_tested_on_where_no_test_set_was_set_aside():
    parts = split(make(900), DataSpec(), partition=partitions.get("iid"), benign=9, targets=300, mask=300, seed=0)
    assert len(parts.test) == 90
    assert sum(len(shard) for shard in parts.shards) == 160


def test_records_that_leave_no_tenth_to_test_on_are_refused_unless_the_spec_is_content_with_fewer():
    def draw(**options):
        return split(
            make(840), DataSpec(**options), partition=partitions.get("iid"), benign=9, targets=300, mask=300, seed=0
        )

    with pytest.raises(InputError) as error:
        draw()
    for said in ("840 records", "84 test", "need 150", "attack.targets", "attack.mask", "data.validation", "data.test"):
        assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert len(draw(test=10).test) == 10


@pytest.mark.parametrize(
    ("records", "published_test", "options", "sizes"),
    [
        (5010, 0, {}, (2505, 1855)),
        (5000, 0, {}, (2500, 1850)),
        (60_000, 10_000, {}, (30_000, 10_000)),
        (60_000, 10_000, {"train": 900}, (900, 10_000)),
    ],
)
def test_splits_that_published_results_rest_on_keep_their_sizes(records, published_test, options, sizes):
    parts = split(
        make(records, published_test=published_test),
        DataSpec(**options),
        partition=partitions.get("iid"),
        benign=9,
        targets=300,
        mask=300,
        seed=0,
    )
    assert (sum(len(shard) for shard in parts.shards), len(parts.test)) == sizes


def test_members_are_drawn_evenly_from_the_clients():
    parts = split(make(2000), DataSpec(), partition=partitions.get("iid"), benign=9, targets=300, mask=100, seed=0)
    counts = torch.bincount(parts.target_clients[parts.member], minlength=9)
    assert counts.max() - counts.min() <= 1


def test_the_same_seed_gives_the_same_splits_and_another_seed_others():
    def members(seed):
        return split(
            make(800), DataSpec(), partition=partitions.get("iid"), benign=4, targets=40, mask=40, seed=seed
        ).members.tolist()

    assert members(3) == members(3)
    assert members(3) != members(4)


@pytest.mark.parametrize(
    ("options", "targets", "says"),
    [
        ({}, 700, "leave"),
        ({"train": 10}, 100, "data.train: 10"),
        ({"train": 5000}, 20, "data.train: 5000 is not allowed"),
        ({"validation": 900}, 20, "900 validation"),
        ({"test": 500}, 20, "500 test"),
    ],
)
def test_too_small_a_data_set_is_refused_in_one_line(options, targets, says):
    with pytest.raises(InputError) as error:
        split(
            make(600),
            DataSpec(**options),
            partition=partitions.get("iid"),
            benign=4,
            targets=targets,
            mask=40,
            seed=0,
        )
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["cifar10", "stl10", "fer2013", "fashion_mnist"])
def test_published_pictures_are_tested_on_a_thousand_unless_told_otherwise(name):
    data = make(9000, classes=5, published_test=7178)
    options = {"partition": partitions.get("iid"), "benign": 4, "targets": 20, "mask": 10, "seed": 0}
    assert len(split(data, get(name), **options).test) == 1000
    assert len(split(data, get(name, test=None), **options).test) == 7178
    assert len(split(data, get(name, test=50), **options).test) == 50
