"""Whatever a reply does, it is set aside and named, and the round goes on.

`SCAPEGOAT_REPLIES=100000 pytest tests/integrations/test_flower_fuzz.py` draws that many hostile replies.
"""

from __future__ import annotations

import io
import logging
import os
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.common import Code, FitRes, Parameters, Status, ndarrays_to_parameters

from scapegoat.integrations.flower import LegacyRobustAggregation, RobustAggregation
from scapegoat.integrations.flower.live.recorder import RecordingGrid
from scapegoat.integrations.flower.replies.npy import view
from scapegoat.integrations.flower.replies.timeouts import PatientGrid
from scapegoat.integrations.shared.faults import MalformedReplyError
from tests.integrations.flower_fakes import FakeGrid, answering, instruction, record, reply
from tests.integrations.flower_fuzz import MODEL, fuzzed, honest

REPLIES = int(os.environ.get("SCAPEGOAT_REPLIES", "1500"))
HONEST = (1, 2, 3, 4, 5, 6)
HOSTILE = tuple(range(90, 100))
RULES = ("median", "atm", "trimmed_mean", "fedavg", "multi_krum", "norm_clipping")


@pytest.fixture(autouse=True)
def _quiet():
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def readable(data: bytes) -> np.ndarray | None:
    """NumPy's own reader, as slow and as careful as it is."""
    try:
        stream = io.BytesIO(data)
        found = np.load(stream, allow_pickle=False)
        return found if stream.read() == b"" else None
    except Exception:
        return None


def usable(message: Message) -> bool:
    """The obvious check of one reply: everything that was sent out, as it was sent out, and finite."""
    if message.has_error():
        return False
    arrays, metrics = list(message.content.array_records.values()), list(message.content.metric_records.values())
    if len(arrays) != 1 or len(metrics) != 1 or set(arrays[0]) != set(MODEL):
        return False
    for name, array in arrays[0].items():
        found, sent = readable(array.data), MODEL[name]
        if array.stype != "numpy.ndarray" or found is None or found.dtype != sent.dtype or found.shape != sent.shape:
            return False
        if not np.isfinite(found).all() or (name.startswith("norm") and (found < 0).any()):
            return False
    return True


@pytest.mark.parametrize("rule", RULES)
def test_no_reply_ends_a_round_and_each_that_is_not_used_is_named(rule, tmp_path):
    rng = random.Random(f"hostile replies against {rule}")
    strategy = RobustAggregation(rule, seed=0)
    grid = FakeGrid({node: answering(dict) for node in HONEST + HOSTILE})
    recorder = RecordingGrid(grid, tmp_path / "rounds.jsonl", "arrays")
    for server_round in range(1, REPLIES // (len(RULES) * len(HOSTILE)) + 2):
        strategy.configure_train(server_round, record(MODEL), ConfigRecord(), grid)
        recorder._open([instruction(1, record(MODEL))], [])
        hostile = {node: fuzzed(rng, node) for node in HOSTILE}
        messages = [reply(node, honest(rng)) for node in HONEST] + [m for sent in hostile.values() for m in sent]
        rng.shuffle(messages)
        for message in messages:
            recorder._note(message)
        arrays, metrics = strategy.aggregate_train(server_round, messages)
        strategy.aggregate_evaluate(server_round, messages)
        report = strategy.history.pop()
        named = {*report.set_aside, *report.failed}
        assert set(HONEST) <= set(report.nodes)
        assert named | set(report.nodes) == {*HONEST, *HOSTILE}
        for node, sent in hostile.items():
            if node in report.nodes:
                assert any(usable(message) for message in sent)
        assert all(np.isfinite(array.numpy()).all() for array in arrays.values())
        assert set(metrics["set-aside-nodes"]) | set(metrics["failed-nodes"]) == named
        for reason in (*report.set_aside.values(), *report.failed.values()):
            assert len(reason) <= 200
            assert reason.isprintable()


def test_no_result_ends_a_round_of_the_older_api():
    rng = random.Random(1)
    strategy = LegacyRobustAggregation("median", buffers=("2",))
    manager = SimpleNamespace(num_available=lambda: 7, sample=lambda **keywords: [])
    start = ndarrays_to_parameters(list(MODEL.values()))

    def result(cid, tensors, examples=3, kind="numpy.ndarray"):
        return SimpleNamespace(cid=cid), FitRes(Status(Code.OK, ""), Parameters(tensors, kind), examples, {})

    for server_round in range(1, REPLIES // 10):
        strategy.configure_fit(server_round, start, manager)
        good = [result(str(i), ndarrays_to_parameters(list(honest(rng).values())).tensors) for i in range(4)]
        (message, *_) = fuzzed(rng, 90)
        records = [] if message.has_error() else list(message.content.array_records.values())
        tensors = [array.data for arrays in records for array in arrays.values()]
        examples = rng.choice((3, -1, float("nan"), 10**400, None, "many"))
        parameters, _ = strategy.aggregate_fit(server_round, [*good, result("90", tensors, examples)], [])
        report = strategy.history.pop()
        assert {0, 1, 2, 3} <= set(report.nodes)
        assert (90 in report.nodes) != (90 in report.set_aside)
        assert parameters is not None


@pytest.mark.parametrize(
    "header",
    [b"\x93NUMPY\x01\x00\x0b\x00{'descr': '", b"\x93NUMPY\x01\x00\x00\x00", b"\x93NUMPY", b"", b"PK\x03\x04"],
)
def test_bytes_that_are_no_array_are_malformed_and_nothing_else(header):
    with pytest.raises(MalformedReplyError, match="not an array"):
        view(header)


@given(
    hnp.arrays(
        st.one_of(hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.boolean_dtypes()),
        hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
    ),
    st.booleans(),
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
)
def test_whatever_numpy_writes_is_read_as_numpy_reads_it(array, fortran, version):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asfortranarray(array) if fortran else array, version=version)
    found, expected = view(stream.getvalue()), readable(stream.getvalue())
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


class Unopened(FakeGrid):
    """Flower fails on one node's reply while it opens it, and loses what it has opened before."""

    def pull_messages(self, message_ids):
        found = list(super().pull_messages(message_ids))
        if any(message.metadata.src_node_id == 9 for message in found):
            raise ValueError("Invalid object\ncontent")
        return found


def test_a_reply_that_flower_cannot_open_is_named_and_the_others_are_used_from_the_next_round_on():
    strategy = RobustAggregation("median", fraction_evaluate=0.0, round_timeout=0.3)
    grid = Unopened({node: answering(lambda a: {k: v + 1 for k, v in a.items()}) for node in (1, 2, 3, 9)})
    result = strategy.start(grid, ArrayRecord({"w": Array(np.zeros(3, np.float32))}), num_rounds=3)
    for report in strategy.history[1:]:
        assert report.nodes == (1, 2, 3)
        assert report.set_aside == {9: "something that cannot be read (ValueError: Invalid object content)"}
    assert result.arrays["w"].numpy()[0] >= 2


def test_a_superlink_that_is_gone_is_nobodys_reply():
    class Gone(FakeGrid):
        def pull_messages(self, message_ids):
            raise ConnectionError("refused")

    grid = PatientGrid(Gone({1: answering(dict)}), 5.0)
    with pytest.raises(ConnectionError):
        grid.send_and_receive([instruction(1, record(MODEL))])


def test_a_reply_in_another_nodes_name_is_set_aside_under_its_own():
    def impostor(message):
        sent = answering(dict)(message)
        sent.metadata.__dict__["_src_node_id"] = 1
        return sent

    strategy = RobustAggregation("median", fraction_evaluate=0.0)
    grid = FakeGrid({**{node: answering(dict) for node in (1, 2, 3)}, 9: impostor})
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(3, np.float32))}), num_rounds=1)
    assert strategy.history[0].nodes == (1, 2, 3)
    assert strategy.history[0].set_aside == {9: "a reply in the name of node 1"}
