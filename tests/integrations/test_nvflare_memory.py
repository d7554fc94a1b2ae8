"""A rule's memory lies beside FLARE's saved model and goes on from there after a restart of the server."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scapegoat.errors import InputError
from scapegoat.integrations.nvflare import ReputationAngularTrimmedMean, RobustAggregator, state
from tests.integrations.nvflare_fakes import Engine, Workflow, model, reply, trained


def replies(given, round_, count=6):
    return [reply(f"site-{i}", trained(given, seed=100 * round_ + i)) for i in range(count)]


def rounds(workflow, begin, end):
    for number in range(begin, end):
        workflow.round(replies(workflow.params, number))
    return workflow


def beside(folder):
    """A persistor that loads its checkpoint from a folder."""
    return Engine(persistor=SimpleNamespace(source_ckpt_file_full_name=str(folder / "FL_global_model.pt")))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_restarted_server_goes_on_as_if_nothing_had_happened(tmp_path, optimizer):
    def make():
        return ReputationAngularTrimmedMean(seed=5, server_optimizer=optimizer)

    whole = rounds(Workflow(make(), model()), 0, 6)
    first = rounds(Workflow(make(), model(), folder=tmp_path), 0, 3)
    second = Workflow(make(), first.params, engine=beside(tmp_path))
    assert second.aggregator.server.steps == 3
    rounds(second, 3, 6)
    for name in whole.params:
        np.testing.assert_array_equal(second.params[name], whole.params[name])
    one, two = (workflow.aggregator.server.state for workflow in (whole, second))
    assert one.keys() == two.keys()
    assert any(name.startswith("reputation/") for name in one)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_server_killed_between_memory_and_model_finds_the_memory_of_the_model_that_is_there(tmp_path):
    workflow = rounds(Workflow(ReputationAngularTrimmedMean(), model(), folder=tmp_path), 0, 2)
    saved = dict(workflow.params)
    rounds(workflow, 2, 3)  # its memory was written, its model was not
    again = Workflow(ReputationAngularTrimmedMean(), saved, engine=beside(tmp_path))
    assert again.aggregator.server.steps == 2


def test_a_memory_of_another_model_is_not_taken_and_the_log_says_so(tmp_path, caplog):
    rounds(Workflow(ReputationAngularTrimmedMean(), model(), folder=tmp_path), 0, 2)
    again = Workflow(ReputationAngularTrimmedMean(), model(seed=9), engine=beside(tmp_path))
    assert again.aggregator.server.state == {}
    assert "the rule begins without memory" in " ".join(caplog.messages)


def test_a_memory_whose_vectors_lie_in_another_order_is_not_taken(tmp_path, caplog):
    before = rounds(Workflow(ReputationAngularTrimmedMean(), model(), folder=tmp_path), 0, 2)
    turned = dict(reversed(before.params.items()))
    again = Workflow(ReputationAngularTrimmedMean(), turned, engine=beside(tmp_path))
    assert again.aggregator.server.state == {}
    assert "the rule begins without memory" in " ".join(caplog.messages)


@pytest.mark.parametrize("how", ["nothing there", "other rule", "damaged"])
def test_a_memory_that_was_asked_for_and_cannot_be_had_ends_the_job(tmp_path, how):
    workflow = rounds(Workflow(ReputationAngularTrimmedMean(), model(), folder=tmp_path), 0, 1)
    rule = "reputation_atm"
    if how == "nothing there":
        (tmp_path / state.NAME).unlink()
    elif how == "other rule":
        rule = "memory_atm"
    else:
        (tmp_path / state.NAME).write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00garbage!")
    again = Workflow(RobustAggregator(rule, resume_from=str(tmp_path)), workflow.params)
    (said,) = again.engine.panics
    assert said.startswith("resume_from: ")
    assert "\n" not in said


def test_a_memory_that_cannot_be_saved_is_told_and_training_goes_on(tmp_path, caplog):
    (tmp_path / state.NAME / "something").mkdir(parents=True)  # no file can take the place of a folder
    workflow = rounds(Workflow(ReputationAngularTrimmedMean(), model(), folder=tmp_path), 0, 2)
    assert "the rule's memory cannot be saved" in " ".join(caplog.messages)
    assert [report.skipped for report in workflow.aggregator.history] == [None, None]


def test_flares_own_snapshots_carry_the_memory():
    workflow = rounds(Workflow(ReputationAngularTrimmedMean(seed=1), model()), 0, 2)
    kept = workflow.aggregator.get_persist_state(workflow.context)
    again = ReputationAngularTrimmedMean(seed=1)
    again.restore(kept, workflow.context)
    assert again.server.steps == 2
    assert again.server.state.keys() == workflow.aggregator.server.state.keys()


def test_no_prefix_of_a_written_memory_is_taken_for_one(tmp_path):
    rounds(Workflow(ReputationAngularTrimmedMean(), model(), folder=tmp_path), 0, 1)
    data = (tmp_path / state.NAME).read_bytes()
    for length in (0, 1, 7, 8, 20, len(data) // 2, len(data) - 1):
        (tmp_path / "cut").write_bytes(data[:length])
        with pytest.raises(InputError, match="is not the memory of an aggregator"):
            state.read(tmp_path / "cut")
