import torch
from hypothesis import given
from hypothesis import strategies as st

from scapegoat.federation.local import draw_batch


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
