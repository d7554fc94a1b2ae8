import hashlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.data import get, load
from scapegoat.errors import InputError


def test_default_is_5000_sparse_binary_records():
    data = load("hospital")
    assert data.x.shape == (5000, 400)
    assert data.x.dtype == torch.uint8
    assert set(data.x.unique().tolist()) == {0, 1}
    assert data.classes == 30
    assert len(data.y.unique()) == 30
    assert abs(float(data.x.float().mean()) - 0.05) < 0.002


def test_same_options_same_bytes_and_another_seed_other_bytes():
    def content(**options):
        data = load("hospital", **options)
        return hashlib.sha256(data.x.numpy().tobytes() + data.y.numpy().tobytes()).hexdigest()

    assert content() == content()
    assert content(seed=1) != content()


def test_records_do_not_depend_on_how_many_are_asked_for():
    # A block of rows has a stream of its own: the first blocks are the same in a larger data set.
    small, large = load("hospital", records=12_000), load("hospital", records=22_000)
    assert torch.equal(small.x[:10_000], large.x[:10_000])


@settings(deadline=None, max_examples=25)
@given(
    records=st.integers(10, 300),
    features=st.integers(4, 200),
    classes=st.integers(2, 50),
    density=st.floats(0.01, 0.3),
    mixing=st.floats(0, 1),
)
def test_any_size_gives_valid_records(records, features, classes, density, mixing):
    data = get("hospital", records=records, features=features, classes=classes, density=density, mixing=mixing).read([])
    assert data.x.shape == (records, features)
    assert int(data.x.max()) <= 1
    assert 0 <= int(data.y.min()) <= int(data.y.max()) < classes


@pytest.mark.parametrize(
    "options", [{"density": 0.9}, {"classes": 1}, {"records": 2_000_000}, {"mixing": 2}, {"wards": 3}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(InputError):
        get("hospital", **options)


def test_a_model_memorises_it_as_it_does_texas100():
    """The premise of the default audit: all training labels are learnt, about a third of the others cannot be."""
    data = load("hospital")
    rng = torch.Generator().manual_seed(0)
    order = torch.randperm(len(data), generator=rng)
    train, test = order[:3350], order[4000:]
    x, y = data.inputs(torch.arange(len(data))), data.y
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(400, 512), torch.nn.ReLU(), torch.nn.Linear(512, 128), torch.nn.ReLU(), torch.nn.Linear(128, 30)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(120):
        rows = train[torch.randperm(len(train), generator=rng)[:512]]
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    right = model(x).argmax(1) == y
    assert right[train].float().mean() > 0.98
    assert 0.58 < right[test].float().mean() < 0.72


def test_without_mixing_every_label_can_be_told():
    data = load("hospital", mixing=0)
    x = data.x.float().numpy()
    means = np.stack([x[data.y.numpy() == c].mean(axis=0) for c in range(30)])
    likelihood = x @ np.log(means + 1e-3).T + (1 - x) @ np.log(1 - means + 1e-3).T
    assert (likelihood.argmax(axis=1) == data.y.numpy()).mean() > 0.98
