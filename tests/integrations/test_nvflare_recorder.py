"""What is written down about a FLARE round: who replied, who failed, and who was never heard of."""

from __future__ import annotations

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContextManager
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from scapegoat.integrations.nvflare import RoundRecorder
from scapegoat.integrations.shared.hostile import read_lines
from tests.integrations.nvflare_fakes import Engine, model, trained


def fire(recorder, event, client=None, **props):
    context = FLContextManager(engine=Engine(), identity_name="server", job_id="job").new_context()
    if client is not None:
        context.set_peer_context(FLContextManager(engine=Engine(), identity_name=client, job_id="job").new_context())
    for key, value in props.items():
        context.set_prop(key, value, private=True, sticky=False)
    recorder.handle_event(event, context)


def run_round(recorder, asked, results):
    given = model()
    task = DXO(DataKind.WEIGHTS, given).to_shareable()
    for client in asked:
        fire(recorder, AppEventType.BEFORE_TRAIN_TASK, client, **{AppConstants.TRAIN_SHAREABLE: task})
    for client, result in results.items():
        props = {} if result is None else {AppConstants.TRAINING_RESULT: result}
        fire(recorder, AppEventType.AFTER_CONTRIBUTION_ACCEPT, client, **props)
    fire(recorder, AppEventType.AFTER_AGGREGATION)


def reply(seed, **changed):
    return DXO(DataKind.WEIGHTS, {**trained(model(), seed), **changed}).to_shareable()


def test_failed_misshapen_and_silent_clients_are_told_apart(tmp_path):
    recorder = RoundRecorder(str(tmp_path / "rounds.jsonl"))
    odd = reply(3, **{"a.bias": np.zeros(9, dtype=np.float32)})
    run_round(recorder, ["site-1", "site-2", "site-3", "site-4"], {"site-2": None, "site-1": reply(1), "site-3": odd})
    run_round(recorder, ["site-1", "site-2"], {"site-2": reply(2), "site-1": reply(1)})
    first, second = read_lines(tmp_path / "rounds.jsonl")
    assert first["nodes"] == ["site-1"]
    assert list(first["failed"]) == ["site-2"]
    assert "ended in an error" in first["failed"]["site-2"]
    assert list(first["set_aside"]) == ["site-3"]
    assert first["silent"] == ["site-4"]
    assert second["nodes"] == ["site-1", "site-2"]
    assert (second["failed"], second["set_aside"], second["silent"]) == ({}, {}, [])
