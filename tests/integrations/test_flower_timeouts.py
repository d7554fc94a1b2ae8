"""Rounds go on without nodes that die, hang or answer late."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Message, RecordDict

from scapegoat.errors import RunError
from scapegoat.integrations.flower import Mean
from scapegoat.integrations.flower.replies.timeouts import PatientGrid
from tests.integrations.flower_fakes import FakeGrid, answering, record


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def echo(message: Message) -> Message:
    return Message(message.content, reply_to=message)


def silent(message: Message) -> None:
    return None


def messages(*nodes: int) -> list[Message]:
    return [Message(RecordDict(), dst_node_id=node, message_type="train") for node in nodes]


def answered(replies) -> list[int]:
    return sorted(reply.metadata.src_node_id for reply in replies)


@pytest.fixture(autouse=True)
def _log_is_heard(monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)


def test_a_silent_node_costs_one_time_limit_and_no_more(caplog):
    clock = Clock()
    grid = PatientGrid(FakeGrid({1: echo, 2: silent, 3: echo}), limit=10, clock=clock, sleep=clock.sleep)
    assert answered(grid.send_and_receive(messages(1, 2, 3), timeout=3600)) == [1, 3]
    assert grid.silent == (2,)
    assert clock.now == pytest.approx(10)
    assert any("node 2" in line for line in caplog.messages)
    assert answered(grid.send_and_receive(messages(1, 2, 3), timeout=3600)) == [1, 3]
    assert clock.now == pytest.approx(10)


def test_a_late_reply_is_named_and_not_used_and_its_node_is_waited_for_again(caplog):
    clock = Clock()
    fake = FakeGrid({1: echo, 2: echo}, delay={2: 30})
    grid = PatientGrid(fake, limit=5, clock=clock, sleep=clock.sleep)
    assert answered(grid.send_and_receive(messages(1, 2))) == [1]
    fake.delay.clear()
    fake._ready = {name: (0, reply) for name, (_, reply) in fake._ready.items()}
    assert answered(grid.send_and_receive(messages(1, 2))) == [1, 2]
    assert any("node 2" in line and "too late" in line for line in caplog.messages)
    fake.delay[2] = 3
    before = clock.now
    assert answered(grid.send_and_receive(messages(1, 2))) == [1, 2]
    assert clock.now > before
    assert grid.silent == ()


def test_the_callers_timeout_counts_too():
    clock = Clock()
    grid = PatientGrid(FakeGrid({1: silent}), limit=None, clock=clock, sleep=clock.sleep)
    assert list(grid.send_and_receive(messages(1), timeout=3)) == []
    assert clock.now == pytest.approx(3)
    assert list(grid.send_and_receive([], timeout=3)) == []


def test_training_goes_on_with_whoever_answers():
    def step(arrays):
        return {name: value - 1 for name, value in arrays.items()}

    fake = FakeGrid({1: answering(step), 2: silent, 3: answering(step)})
    strategy = Mean(round_timeout=0.2, fraction_evaluate=0.0)
    result = strategy.start(fake, record({"w": np.zeros(3, np.float32)}), num_rounds=3)
    np.testing.assert_array_equal(result.arrays["w"].numpy(), -3)
    assert [report.silent for report in strategy.history] == [(2,)] * 3
    assert result.train_metrics_clientapp[1]["silent-nodes"] == [2]


def test_nobody_answering_leaves_the_model_as_it_is_and_the_run_fails():
    fake = FakeGrid({1: silent, 2: silent})
    strategy = Mean(round_timeout=0.1, fraction_evaluate=0.0)
    with pytest.raises(RunError, match="no round of 2 changed the model"):
        strategy.start(fake, record({"w": np.zeros(3, np.float32)}), num_rounds=2)
    assert [report.skipped for report in strategy.history] == ["no reply could be used"] * 2
    assert isinstance(fake.sent[-1].content["arrays"], ArrayRecord)
