"""FLARE's POC mode, real processes with TLS: a site that goes wrong, and a site and a server that are killed."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from scapegoat import aggregation
from scapegoat.aggregation import AggregationContext
from scapegoat.integrations.nvflare import job_files, state
from scapegoat.integrations.nvflare.processes import Poc
from scapegoat.integrations.shared.hostile import read_lines
from scapegoat.integrations.shared.rounds import client_number
from scapegoat.integrations.shared.running import importable

pytestmark = pytest.mark.nvflare

JOB = Path(__file__).parent / "nvflare_job"
SITES = [f"site-{number}" for number in range(1, 5)]
WRONG = {"site-2": ["nan", "shapes", "hundredfold", "nothing"], "site-4": ["well"] * 5 + ["hang"]}
RULE = {"name": "reputation_atm", "trim": 1}


@dataclass
class Served:
    """What a job left on its server: who replied in each round, the newest global model, the rule's memory."""

    folder: Path

    @property
    def rounds(self):
        return read_lines(self.folder / "scapegoat_rounds.jsonl")

    @property
    def model(self):
        saved = torch.load(self.folder / "FL_global_model.pt", weights_only=True)["model"]
        return {name: np.asarray(value) for name, value in saved.items()}

    @property
    def memory(self):
        return state.read(self.folder / state.NAME)


@dataclass
class Story:
    killed: Served
    went_on: Served
    log: str


class ReachedError(Exception):
    """What was waited for is there."""


def exported(folder, **options):
    """The job as files, content with three of its four sites."""
    with importable(JOB):
        import spoiled_job

        files = job_files.export(spoiled_job.recipe(clients=len(SITES), marks=str(folder), **options), folder)
    meta = json.loads((files / "meta.json").read_text())
    (files / "meta.json").write_text(json.dumps({**meta, "min_clients": 3}))
    return files


def wait(federation, job, done):
    """Until the job's rounds are as `done` says."""
    served = Served(federation.kits / "server" / job / "app_server")

    def tell():
        if done(served.rounds):
            raise ReachedError

    with pytest.raises(ReachedError):
        federation.finish(job, 180, tell)
    return served


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("poc")
    with Poc(folder, len(SITES), JOB, {"OMP_NUM_THREADS": "1"}) as federation:
        # The server takes a site for lost when nothing was heard of it for ten minutes; here for a few seconds.
        resources = federation.kits / "server" / "local" / "resources.json.default"
        usual = resources.read_text()
        resources.write_text(usual.replace('"heart_beat_timeout": 600', '"heart_beat_timeout": 20'))
        federation.start_all()
        job = federation.submit(exported(folder / "first", rounds=1000, wrong=WRONG, patience=1.0))
        wait(federation, job, lambda rounds: (folder / "first" / "site-4").exists())
        federation.kill("site-4")
        served = wait(federation, job, lambda rounds: len(rounds) >= 8)
        federation.kill("server")
        killed = shutil.copytree(served.folder, folder / "killed")
        resources.write_text(usual)
        federation.start("server")
        federation.start("site-4")
        checkpoint = str(killed / "FL_global_model.pt")
        more = federation.submit(exported(folder / "second", rounds=2, wrong={}, checkpoint=checkpoint))
        assert federation.finish(more, 180) == "FINISHED:COMPLETED"
        went_on = federation.result(more) / "app_server"
    with importable(JOB):
        yield Story(Served(killed), Served(went_on), (folder / "server.log").read_text())
    for name in ("spoiled_job", "sites", "spoiling"):
        sys.modules.pop(name, None)


def replayed(params, memory, rounds):
    """The same replies in this process: our rule, its state, the next models."""
    import sites

    rule = aggregation.parse(RULE)
    names = [*sites.Net().state_dict()]
    for line in rounds:
        updates = []
        for site in line["clients"]:
            number = line["round"] - 1
            model = sites.trained(params, site, number)
            scale = 100 if WRONG.get(site, [])[number : number + 1] == ["hundredfold"] and "wrong" in line else 1
            updates.append(np.concatenate([(scale * (params[name] - model[name])).reshape(-1) for name in names]))
        rows = torch.from_numpy(np.stack(updates)).float()
        context = AggregationContext.of_rows([client_number(site) for site in line["clients"]], memory)
        step = rule(rows, context).update.numpy()
        steps = np.split(step, np.cumsum([params[name].size for name in names])[:-1])
        params = {
            name: params[name] - part.reshape(params[name].shape) for name, part in zip(names, steps, strict=True)
        }
    return params


def test_a_site_that_goes_wrong_is_named_and_training_goes_on(story):
    first, second, third, fourth, fifth = story.killed.rounds[:5]
    assert first["set_aside"] == {"site-2": "NaN or infinite values"}
    assert second["set_aside"] == {"site-2": "array 'layer.weight' of shape (3,), sent out as (4, 6)"}
    assert (third["set_aside"], third["kept"]) == ({}, ["site-1", "site-3"])
    assert fourth["silent"] == ["site-2"]
    assert (fifth["clients"], fifth["silent"], fifth["set_aside"]) == (SITES, [], {})
    assert not [line for line in story.killed.rounds if line["skipped"]]
    for said in (
        "round 1: client site-2 set aside: sent NaN or infinite values",
        "round 2: client site-2 set aside: sent array 'layer.weight'",
        "round 3: the rule kept 2 of 4 updates; left out: site-2",
        "round 4: client site-2 silent: it was asked, and no model came",
    ):
        assert said in story.log


def test_a_site_that_is_killed_in_a_round_is_named_and_training_goes_on(story):
    lost, *following = story.killed.rounds[5:]
    assert (lost["clients"], lost["silent"]) == (SITES[:3], ["site-4"])
    assert "round 6: client site-4 silent: it was asked, and no model came" in story.log
    assert len(following) >= 2
    assert all(line["clients"] == SITES[:3] and line["kept"] for line in following)


def test_the_model_is_what_our_engine_makes_of_the_same_updates(story):
    import sites

    memory = {}
    rounds = story.killed.rounds[: story.killed.memory.steps]
    first = {name: value.numpy() for name, value in sites.Net().state_dict().items()}
    expected = replayed(first, memory, [line | {"wrong": True} for line in rounds])
    for name, value in expected.items():
        np.testing.assert_allclose(story.killed.model[name], value, atol=1e-6)
    expected = replayed(story.killed.model, memory, story.went_on.rounds)
    for name, value in expected.items():
        np.testing.assert_allclose(story.went_on.model[name], value, atol=1e-6)


def test_a_killed_servers_reputation_goes_on_where_it_was(story):
    assert f"the rule goes on with its memory of {story.killed.memory.steps} rounds" in story.log
    before, after = story.killed.memory, story.went_on.memory
    assert after.steps == before.steps + 2
    memory = {name: value.clone() for name, value in before.rule_state.items()}
    replayed(story.killed.model, memory, story.went_on.rounds)
    assert memory.keys() == after.rule_state.keys()
    assert any(name.startswith("reputation/") for name in memory)
    for name, value in memory.items():
        torch.testing.assert_close(after.rule_state[name], value, atol=1e-5, rtol=1e-5)
