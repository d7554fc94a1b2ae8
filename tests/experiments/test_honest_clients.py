"""The summary says how the rule treated each honest client."""

from __future__ import annotations

import pytest

from scapegoat.experiments.summary import LISTED_CLIENTS, aggregation_summary, client_accuracies, honest_clients
from scapegoat.federation import RoundRecord
from tests.federation.small import federation


def record(round_: int, kept: dict[int, bool], malicious: int = 9) -> RoundRecord:
    return RoundRecord(
        round=round_,
        loss=0.0,
        clients=list(kept),
        malicious=[c == malicious for c in kept],
        kept=list(kept.values()),
        rejected=[False] * len(kept),
    )


def test_rates_and_the_longest_exclusion_count_a_clients_own_rounds() -> None:
    records = [
        record(0, {0: True, 1: False, 9: False}),
        record(1, {0: False, 9: True}),
        record(2, {0: False, 1: False}),
        record(3, {0: True, 1: True}),
        record(4, {0: False, 1: False}),
    ]
    assert honest_clients(records) == [
        {"client": 0, "updates": 5, "kept_rate": 0.4, "longest_exclusion": 2},
        {"client": 1, "updates": 4, "kept_rate": 0.25, "longest_exclusion": 2},
    ]
    summary = aggregation_summary(records)
    assert summary["honest_longest_exclusion"] == 2
    assert [c["client"] for c in summary["honest_clients"]] == [1, 0]


def test_of_many_clients_those_kept_least_are_listed() -> None:
    records = [record(r, {c: c >= 2 * r for c in range(1000, 1300)}) for r in range(2)]
    records += [record(2, {1200: False})]
    listed = aggregation_summary(records)["honest_clients"]
    assert len(listed) == LISTED_CLIENTS
    assert listed[0]["client"] == 1200


def test_without_rounds_nobody_was_left_out() -> None:
    summary = aggregation_summary([])
    assert summary["honest_longest_exclusion"] == 0
    assert summary["honest_clients"] == []


def test_a_clients_accuracy_is_that_of_its_own_mix_of_labels() -> None:
    simulation = federation(partition={"name": "label_bias", "beta": 0.9}, rounds=3)
    while not simulation.done:
        simulation.run_round()
    cast = simulation.cast
    right = cast.model.logits(cast.server.parameters, cast.test.x).argmax(1) == cast.test.y
    for client, told in client_accuracies(cast).items():
        labels = cast.dataset.y[cast.splits.shards[client]].tolist()
        of_class = {c: right[cast.test.y == c].double().mean().item() for c in set(labels)}
        assert told == pytest.approx(sum(of_class[c] for c in labels) / len(labels))
    assert len(client_accuracies(cast)) == cast.setting.benign


def test_accuracies_stand_beside_how_a_client_was_treated() -> None:
    summary = aggregation_summary([record(0, {0: True, 1: False, 9: False})], {0: 0.75, 1: 0.5, 2: 0.25})
    assert [(c["client"], c["test_accuracy"]) for c in summary["honest_clients"]] == [(1, 0.5), (0, 0.75)]
    assert summary["honest_least_accuracy"] == 0.25
    assert "honest_least_accuracy" not in aggregation_summary([])
