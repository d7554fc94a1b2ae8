import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scapegoat.errors import InputError
from scapegoat.federation.local import draw_batch, draw_poisson_batch


@given(st.integers(1, 5000), st.integers(1, 80), st.integers(0, 10))
def test_a_batch_has_no_repeats_and_as_many_records_as_there_are(size, batch, seed):
    rows = draw_batch(size, batch, seed)
    assert len(rows) == min(size, batch)
    assert len(set(rows.tolist())) == len(rows)
    assert int(rows.min()) >= 0
    assert int(rows.max()) < size
    assert torch.equal(rows, draw_batch(size, batch, seed))


def test_every_record_of_a_large_shard_is_drawn_equally_often():
    counts = torch.zeros(200)
    for seed in range(2000):
        counts[draw_batch(200, 10, seed)] += 1
    assert counts.min() > 60
    assert counts.max() < 145


def test_poisson_batches_hold_each_record_independently_at_the_rate():
    drawn = torch.zeros(4000, 50)
    for seed in range(4000):
        drawn[seed, draw_poisson_batch(50, 0.1, seed)] = 1
    assert float(drawn.mean()) == pytest.approx(0.1, abs=0.003)
    assert float(drawn.mean(0).min()) > 0.075
    assert float(drawn.mean(0).max()) < 0.125
    # A fixed number of records would have no variance; 50 independent ones have 50 q (1 - q).
    assert float(drawn.sum(1).var()) == pytest.approx(4.5, rel=0.1)
    assert 0 in drawn.sum(1)
    assert torch.equal(draw_poisson_batch(50, 0.1, 3), draw_poisson_batch(50, 0.1, 3))


def test_poisson_batches_at_the_ends_of_the_range():
    assert len(draw_poisson_batch(7, 0.0, 0)) == 0
    assert draw_poisson_batch(7, 1.0, 0).tolist() == list(range(7))
    with pytest.raises(InputError, match="between 0 and 1"):
        draw_poisson_batch(7, 1.1, 0)
