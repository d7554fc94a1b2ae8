"""A real FLARE job in the simulator: the model is the one that our engine makes of the same updates.

With SCAPEGOAT_FLARE_ROUNDS=20 it is longer, and run in POC's separate processes as well.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import scapegoat as sg
from scapegoat.aggregation import AggregationContext
from scapegoat.cli import main
from scapegoat.integrations.nvflare.audit import audit_job
from scapegoat.integrations.shared.hostile import read_lines, read_model
from scapegoat.integrations.shared.running import importable
from tests.integrations.private import assert_private

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare"
ROUNDS = int(os.environ.get("SCAPEGOAT_FLARE_ROUNDS", "2"))


def recomputed(clients, rounds, rule):
    """The example's federation in this process: its own training, our rule."""
    import hospital_sites as sites

    torch.set_num_threads(1)
    chosen, state = sg.aggregation.parse(rule), {}
    model = sites.Net()
    for round_ in range(rounds):
        start = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        updates = []
        for number in range(1, clients + 1):
            x, y = sites.load_data(f"site-{number}", clients)
            torch.nn.utils.vector_to_parameters(start.clone(), model.parameters())
            sites.train(model, x, y, epochs=5, lr=0.2, seed=1000 * round_ + number)
            updates.append(start - torch.nn.utils.parameters_to_vector(model.parameters()).detach())
        context = AggregationContext.of_rows(range(clients), state)
        following = start - chosen(torch.stack(updates), context).update
        torch.nn.utils.vector_to_parameters(following, model.parameters())
    return {name: value.numpy() for name, value in model.state_dict().items()}


@pytest.mark.nvflare
@pytest.mark.parametrize("poc", [False, True] if "SCAPEGOAT_FLARE_ROUNDS" in os.environ else [False])
def test_a_job_ends_with_the_model_that_our_engine_makes(tmp_path, poc):
    run = audit_job(
        f"{EXAMPLE / 'job.py'}:recipe",
        "hospital_sites:material",
        "passive",
        tmp_path,
        clients=3,
        poc=poc,
        settings={"rounds": ROUNDS, "aggregator": "ReputationAngularTrimmedMean"},
        environment={"OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    with importable(EXAMPLE):
        expected = recomputed(3, ROUNDS, "reputation_atm")
    found = read_model(run.directory / "final.safetensors")
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6)
    lines = read_lines(run.directory / "rounds.jsonl")
    assert [line["nodes"] for line in lines] == [["site-1", "site-2", "site-3"]] * ROUNDS
    assert all(len(line["kept"]) == 3 for line in lines)
    assert run.summary["live"]["observed_rounds"] == ROUNDS
    assert_private(run.directory)
    assert run.summary["defense"] == "reputation_atm"
    assert run.summary["membership"]["auc"] > 0.4
    # Before any training: what the example's model tells of the example's records by chance.
    assert run.summary["membership"]["initial_auc"] == pytest.approx(0.626, abs=0.001)
    marks = [p for p in psutil.process_iter() if str(run.directory) in " ".join(_words(p))]
    assert marks == []
    sys.modules.pop("hospital_sites", None)


@pytest.mark.nvflare
def test_the_command_poisons_past_the_filters_of_the_other_sites_and_writes_a_report(tmp_path, monkeypatch, capsys):
    page = tmp_path / "report.html"
    options = {
        "--job": f"{EXAMPLE / 'job.py'}:recipe",
        "--material": "hospital_sites:material",
        "--clients": "3",
        "--filter": "{name: percentile_privacy, gamma: 0.00001}",
        "--attack": "fedpoisonmia",
        "--env": "OMP_NUM_THREADS",
        "--out": str(tmp_path),
        "--report": str(page),
    }
    settings = ["rounds=2", "aggregator=FedAvg", "differences=true"]
    command = [*(word for pair in options.items() for word in pair), *(w for s in settings for w in ("--set", s))]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(SystemExit) as ended:
        main(["nvflare", "audit", "--json", *command])
    assert ended.value.code == 0
    (summary,) = json.loads(capsys.readouterr().out)
    assert (summary["attack"], summary["defense"], summary["rounds"]) == ("fedpoisonmia", "percentile_privacy", 2)
    (live,) = (tmp_path / "live").iterdir()
    sent = [line for line in read_lines(live / "hostile" / "observations.jsonl") if line["message"] == "train"]
    for line, served in zip(sent, read_lines(live / "rounds.jsonl"), strict=True):
        norms = dict(zip(served["nodes"], served["norm"], strict=True))
        assert line["attacking"]
        assert norms["site-3"] == pytest.approx(line["norm"], rel=1e-3)
        # What the others send is cut to a tenth of what they learnt.
        assert max(norms["site-1"], norms["site-2"]) < 0.5 * line["honest_norm"]
    assert "percentile_privacy" in page.read_text()
    sys.modules.pop("hospital_sites", None)


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
