import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.data.partitions import registry

kinds = st.sampled_from(
    [
        {"name": "iid"},
        {"name": "label_bias", "beta": 0.0},
        {"name": "label_bias", "beta": 0.9},
        {"name": "label_bias", "beta": 1.0},
        {"name": "dirichlet", "alpha": 0.05},
        {"name": "dirichlet", "alpha": 10.0},
    ]
)


@given(kinds, st.integers(1, 12), st.integers(1, 15), st.integers(15, 200), st.integers(0, 5))
@settings(deadline=None)
def test_every_record_has_exactly_one_owner_and_no_client_is_empty(kind, classes, clients, records, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, records)
    shards = registry.parse(kind).split(labels, classes, clients, rng)
    assert len(shards) == clients
    assert sorted(np.concatenate(shards).tolist()) == list(range(records))
    assert all(len(s) for s in shards)


def test_iid_shares_are_equal():
    shards = registry.get("iid").split(np.zeros(103, dtype=int), 1, 10, np.random.default_rng(0))
    assert {len(s) for s in shards} == {10, 11}


@pytest.mark.parametrize(("classes", "clients"), [(10, 10), (30, 9), (5, 20)])
def test_label_bias_gives_a_label_to_its_own_group_with_probability_beta(classes, clients):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, classes, 60_000)
    shards = registry.get("label_bias", beta=0.5).split(labels, classes, clients, rng)
    owner = np.empty(len(labels), dtype=int)
    for client, shard in enumerate(shards):
        owner[shard] = client
    # Group g covers clients floor(n g / h) .. floor(n (g + 1) / h); all of a label's own share lands there.
    for label in range(classes):
        lo, hi = clients * label // classes, -(-clients * (label + 1) // classes)
        inside = np.mean((owner[labels == label] >= lo) & (owner[labels == label] < hi))
        assert inside > 0.45


def test_small_alpha_concentrates_labels():
    labels = np.random.default_rng(0).integers(0, 10, 5000)

    def largest_share(alpha):
        shards = registry.get("dirichlet", alpha=alpha).split(labels, 10, 10, np.random.default_rng(2))
        return np.mean([np.bincount(labels[s], minlength=10).max() / len(s) for s in shards if len(s)])

    assert largest_share(0.05) > 2 * largest_share(100.0)
