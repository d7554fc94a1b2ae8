"""A model that saw none of the targets: no score finds members, and the clients really hold none."""

from __future__ import annotations

import numpy as np

from results import null_audit
from scapegoat.experiments.spec import parse
from scapegoat.experiments.staging import staged
from scapegoat.membership.scores import registry

TINY = {
    **null_audit.SMALL,
    "data": {"name": "hospital", "records": 900},
    "model": {"name": "mlp", "hidden": [8]},
    "federation": {"rounds": 3},
    "attack": {"name": "passive", "targets": 60, "mask": 60},
}


def test_clients_that_hold_no_target_train_on_none():
    cast = null_audit.without_targets(staged(parse(TINY)))
    held = np.concatenate([shard.numpy() for shard in cast.benign.shards])
    assert not np.isin(held, cast.splits.targets.numpy()).any()
    assert len(held) > 0


def test_every_score_of_both_seats_is_tried_on_the_same_targets():
    scores = null_audit.scores_of(parse(TINY), references=2)
    assert set(scores) == set(registry.names())
    assert {values.shape for values in scores.values()} == {(60,)}
