"""A hostile FLARE client: it poisons on its own site only, and refuses federations that are not its user's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from torch import nn

from scapegoat.attacks import Samples
from scapegoat.errors import InputError
from scapegoat.integrations import nvflare as flare
from scapegoat.integrations.nvflare import AuditMaterial, HostileFilter, UnfilteredReply
from scapegoat.integrations.nvflare.job_files import (
    code_hash,
    defense_of,
    export,
    filter_component,
    recipe_function,
    rounds_of,
    rule_of,
    trim_of,
    wire,
)
from scapegoat.integrations.shared.audit_inputs import read_hostile, write_hostile
from scapegoat.integrations.shared.hostile import live_attack, read_lines
from tests.integrations.nvflare_fakes import Engine, Net


class Small(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)


def samples(count, seed):
    source = torch.Generator().manual_seed(seed)
    return Samples(torch.randn(count, 6, generator=source), torch.randint(3, (count,), generator=source))


MATERIAL = AuditMaterial(Small, samples(20, 1), torch.arange(20) < 10, samples(15, 2))


def filters(folder, attack, trim=None, **keywords):
    path = write_hostile(folder, MATERIAL, live_attack(attack), seed=0, stand_ins=4, batch_size=8, trim=trim)
    made = []
    for chain in (FilterChainType.TASK_DATA_CHAIN, FilterChainType.TASK_RESULT_CHAIN):
        one = HostileFilter("site-2", str(path), **keywords)
        one.set_prop(FilterContextKey.CHAIN_TYPE, chain)
        made.append(one)
    return made


def context(site="site-2", simulated=True, target=None, folder=None):
    engine = Engine()
    if target is not None:
        kit = Path(folder) / "fed_client.json"
        kit.write_text(json.dumps({"servers": [{"service": {"target": target}}]}))
        engine.get_workspace = lambda: SimpleNamespace(get_client_startup_file_path=lambda: str(kit))
    else:
        engine.get_workspace = lambda: None
    found = FLContextManager(engine=engine, identity_name=site, job_id="job").new_context()
    if simulated:
        found.set_prop(FLContextKey.SIMULATE_MODE, True, private=True, sticky=True)
    return found


def model():
    torch.manual_seed(3)
    return {name: value.numpy().copy() for name, value in Small().state_dict().items()}


def task(round_):
    made = Shareable()
    made.set_header(AppConstants.CURRENT_ROUND, round_)
    return made


@pytest.mark.parametrize("attack", ["passive", "gradient_ascent", "agrevader", "fedpoisonmia", "adaptive"])
@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_it_scores_every_model_and_sends_its_own_update_in_the_place_of_the_honest_one(tmp_path, attack, kind):
    watch, poison = filters(tmp_path, attack)
    given, here = model(), context()
    honest = {name: value + 0.01 * np.sign(value) for name, value in given.items()}
    if kind == DataKind.WEIGHT_DIFF:
        honest = {name: honest[name] - given[name] for name in given}
    for round_ in (0, 1):
        assert watch.process_dxo(DXO(DataKind.WEIGHTS, given), task(round_), here) is None
        sent = poison.process_dxo(DXO(kind, dict(honest)), Shareable(), here)
        assert sent.data_kind == kind
        moved = max(float(np.abs(sent.data[name] - honest[name]).max()) for name in honest)
        assert (moved < 1e-6) == (attack == "passive")
        assert all(sent.data[name].dtype == np.float32 and np.isfinite(sent.data[name]).all() for name in honest)
    lines = read_lines(tmp_path / "observations.jsonl")
    assert [(line["message"], line["after"]) for line in lines] == [
        ("task", 0),
        ("train", 0),
        ("task", 1),
        ("train", 0),
    ]
    assert len(lines[0]["scores"]) == 20


def test_the_rounds_of_an_attack_are_counted_from_zero_as_in_the_simulation(tmp_path):
    watch, poison = filters(tmp_path, {"name": "fedpoisonmia", "start_round": 1})
    here = context()
    for round_ in (0, 1):
        watch.process_dxo(DXO(DataKind.WEIGHTS, model()), task(round_), here)
        poison.process_dxo(DXO(DataKind.WEIGHTS, model()), Shareable(), here)
    sent = [line for line in read_lines(tmp_path / "observations.jsonl") if line["message"] == "train"]
    assert [(line["server_round"], line["attacking"]) for line in sent] == [(1, False), (2, True)]


def test_on_other_sites_it_does_nothing(tmp_path):
    watch, poison = filters(tmp_path, "gradient_ascent")
    here = context(site="site-1")
    assert watch.process_dxo(DXO(DataKind.WEIGHTS, model()), task(0), here) is None
    assert poison.process_dxo(DXO(DataKind.WEIGHTS, model()), Shareable(), here) is None
    assert read_lines(tmp_path / "observations.jsonl") == []


@pytest.mark.parametrize(
    ("target", "owned", "works"),
    [
        ("localhost:8002", False, True),
        ("127.0.0.1:8002", False, True),
        ("192.0.2.7:8002", False, False),
        ("192.0.2.7:8002", True, True),
        (None, False, False),
    ],
)
def test_outside_simulator_and_this_machine_it_refuses_unless_the_federation_is_declared(
    tmp_path, target, owned, works
):
    watch, _ = filters(tmp_path, "passive", owned=owned)
    here = context(simulated=False, target=target, folder=tmp_path)
    watch.handle_event(EventType.START_RUN, here)
    if works:
        watch.process_dxo(DXO(DataKind.WEIGHTS, model()), task(0), here)
        assert not here.get_engine().panics
    else:
        with pytest.raises(InputError, match="owned=True"):
            watch.process_dxo(DXO(DataKind.WEIGHTS, model()), task(0), here)
        assert "yours" in here.get_engine().panics[0]


def test_a_job_gets_filters_on_every_client_the_hostile_one_last_and_a_recorder(tmp_path):
    (tmp_path / "config_fed_client.json").write_text(json.dumps({"task_result_filters": []}))
    server = {"workflows": [{"args": {"aggregator": {"path": "scapegoat.integrations.nvflare.Krum", "args": {}}}}]}
    (tmp_path / "config_fed_server.json").write_text(json.dumps(server))
    assert rule_of(tmp_path)["name"] == "krum"
    part = filter_component({"name": "percentile_privacy", "gamma": 0.02})
    wire(tmp_path, site="site-3", hostile=tmp_path / "h.json", rounds=tmp_path / "r.jsonl", filters=[part])
    client = json.loads((tmp_path / "config_fed_client.json").read_text())
    paths = [one["path"].rpartition(".")[2] for one in client["task_result_filters"][-1]["filters"]]
    assert paths == ["UnfilteredReply", "PercentilePrivacy", "HostileFilter"]
    assert client["task_result_filters"][-1]["filters"][1]["args"] == {"gamma": 0.02}
    written = json.loads((tmp_path / "config_fed_server.json").read_text())
    assert written["components"][-1]["path"].endswith("RoundRecorder")


@pytest.mark.parametrize("direction", [None, "out", "inout"])
def test_a_jobs_own_filters_stay_and_act_between_ours(tmp_path, direction):
    own = {"tasks": ["train", "validate"], "filters": [{"path": "my_job.Own"}]}
    own |= {"direction": direction} if direction else {}
    (tmp_path / "config_fed_client.json").write_text(json.dumps({"task_result_filters": [own]}))
    wire(tmp_path, site="site-3", hostile=tmp_path / "h.json", rounds=tmp_path / "r.jsonl", filters=[])
    table = {}
    for chain in json.loads((tmp_path / "config_fed_client.json").read_text())["task_result_filters"]:
        towards = chain.get("direction", "out")
        for key in [(task, way) for task in chain["tasks"] for way in ("in", "out") if way in towards]:
            assert key not in table, "FLARE refuses a second chain"
            table[key] = [one["path"].rpartition(".")[2] for one in chain["filters"]]
    assert table["train", "out"] == ["UnfilteredReply", "Own", "HostileFilter"]
    assert table["validate", "out"] == ["Own"]
    assert (table.get(("train", "in")) == ["Own"]) == (direction == "inout")


FEDAVG = "nvflare.app_common.workflows.fedavg.FedAvg"
SAG = "nvflare.app_common.workflows.scatter_and_gather.ScatterAndGather"
WEIGHTS = {"path": "nvflare.app_common.workflows.initialize_global_weights.InitializeGlobalWeights", "args": {}}


@pytest.mark.parametrize(
    ("workflows", "tasks"),
    [
        ([{"path": FEDAVG, "args": {}}], ["train"]),
        ([{"path": FEDAVG, "args": {"task_name": "learn"}}], ["learn"]),
        ([{"path": SAG, "args": {}}], ["train"]),
        ([{"path": SAG, "args": {"train_task_name": "fit"}}], ["fit"]),
        ([WEIGHTS, {"path": SAG, "args": {}}], ["train"]),
        ([{"path": FEDAVG, "args": {"task_name": "warm"}}, {"path": SAG, "args": {}}], ["train", "warm"]),
        ([{"path": "custom.Workflow", "args": {"num_rounds": 3, "task_name": "own"}}], ["own"]),
        ([{"path": "custom.Workflow", "args": {}}], ["train"]),
    ],
)
def test_the_hostile_filter_is_on_the_tasks_that_the_jobs_workflows_name(tmp_path, workflows, tasks):
    own = {"tasks": ["learn", "validate"], "filters": [{"path": "my_job.Own"}]}
    (tmp_path / "config_fed_client.json").write_text(json.dumps({"task_result_filters": [own]}))
    (tmp_path / "config_fed_server.json").write_text(json.dumps({"workflows": workflows}))
    wire(tmp_path, site="site-3", hostile=tmp_path / "h.json", rounds=tmp_path / "r.jsonl", filters=[])
    client = json.loads((tmp_path / "config_fed_client.json").read_text())
    for key in ("task_data_filters", "task_result_filters"):
        chains = [chain for chain in client[key] if chain["filters"][-1]["path"].endswith("HostileFilter")]
        assert [chain["tasks"] for chain in chains] == [[task] for task in tasks]
        owners = [task for chain in client[key] for task in chain["tasks"]]
        assert len(owners) == len(set(owners)), "FLARE refuses a second chain"
    kept = [one["path"] for chain in client["task_result_filters"] for one in chain["filters"] if "my_job" in str(one)]
    assert kept == ["my_job.Own"] * (2 if "learn" in tasks else 1)


def job_of(folder, **arguments):
    server = {"workflows": [{"path": FEDAVG, "args": arguments}]}
    folder.mkdir(exist_ok=True)
    (folder / "config_fed_server.json").write_text(json.dumps(server))
    return folder


def test_how_many_rounds_a_job_trains_is_told_apart_from_its_code(tmp_path):
    two, three = job_of(tmp_path / "two", num_rounds=2), job_of(tmp_path / "three", num_rounds=3)
    assert (rounds_of(two), rounds_of(three)) == (2, 3)
    assert code_hash(two) == code_hash(three)
    assert code_hash(two) != code_hash(job_of(tmp_path / "other", num_rounds=2, task_name="learn"))


@pytest.mark.parametrize(
    ("aggregator", "trim"),
    [
        ({"path": "scapegoat.integrations.nvflare.AngularTrimmedMean", "args": {"trim": 2}}, 2),
        ({"path": "scapegoat.integrations.nvflare.RobustAggregator", "args": {"rule": "atm", "trim": 0.3}}, 3),
        ({"path": "scapegoat.integrations.nvflare.Krum", "args": {}}, None),
        ({"path": "my_job.Own", "args": {"trim": 2}}, None),
        (None, None),
    ],
)
def test_what_our_rule_trims_is_read_from_the_job(tmp_path, aggregator, trim):
    assert trim_of(job_of(tmp_path, aggregator=aggregator), 10) == trim


@pytest.mark.parametrize(("attack", "told"), [("adaptive", 2), ("sleeper", None), ("fedpoisonmia", None)])
def test_only_an_attack_whose_threat_model_grants_it_is_told_the_trim(tmp_path, attack, told):
    path = write_hostile(tmp_path, MATERIAL, live_attack(attack), seed=0, stand_ins=4, batch_size=8, trim=2)
    assert read_hostile(path).trim == told


def test_what_the_owner_of_the_app_says_about_the_rule_comes_first(tmp_path):
    material = replace(MATERIAL, trim=3)
    path = write_hostile(tmp_path, material, live_attack("adaptive"), seed=0, stand_ins=4, batch_size=8, trim=2)
    assert read_hostile(path).trim == 3
    assert material.content_hash() != MATERIAL.content_hash()
    with pytest.raises(InputError, match="trim: -1"):
        replace(MATERIAL, trim=-1)


def test_an_adaptive_attack_hides_from_the_trim_that_it_is_told(tmp_path):
    given, sent = model(), {}
    for trim in (1, 2):
        watch, poison = filters(tmp_path / str(trim), "adaptive", trim=trim)
        here = context()
        honest = {name: value + 0.01 * np.sign(value) for name, value in given.items()}
        watch.process_dxo(DXO(DataKind.WEIGHTS, given), task(0), here)
        sent[trim] = poison.process_dxo(DXO(DataKind.WEIGHTS, honest), Shareable(), here).data
    assert any(not np.array_equal(sent[1][name], sent[2][name]) for name in given)


@pytest.mark.parametrize("site", ["site-1", "site-2"])
def test_what_a_hostile_client_sends_passes_no_filter_of_its_own(tmp_path, site):
    watch, poison = filters(tmp_path, "passive")
    here, given = context(site=site), model()
    watch.process(DXO(DataKind.WEIGHTS, given).to_shareable(), here)
    honest = {name: np.full_like(value, 0.5) for name, value in given.items()}
    reply = DXO(DataKind.WEIGHT_DIFF, {name: value.copy() for name, value in honest.items()}).to_shareable()
    for one in (UnfilteredReply("site-2"), PercentilePrivacy(gamma=0.01), poison):
        reply = one.process(reply, here)
    sent = from_shareable(reply).data
    expected = 0.5 if site == "site-2" else 0.01
    assert all(np.allclose(value, expected) for value in sent.values())
    # The next reply is another one.
    again = DXO(DataKind.WEIGHT_DIFF, {name: 2 * value for name, value in honest.items()}).to_shareable()
    assert all(np.allclose(value, 1.0) for value in from_shareable(poison.process(again, here)).data.values())


def test_an_error_in_the_place_of_a_reply_passes(tmp_path):
    error = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    _, poison = filters(tmp_path, "passive")
    here = context()
    assert poison.process(UnfilteredReply("site-2").process(error, here), here) is error


def aggregated_by(folder, aggregator):
    script = folder / "client.py"
    script.write_text("")
    recipe = FedAvgRecipe(
        name="job", model=Net(), min_clients=2, num_rounds=1, train_script=str(script), aggregator=aggregator,
        key_metric="",
    )  # fmt: skip
    return rule_of(export(recipe, folder / "exported"))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: flare.RobustAggregator("median"), {"name": "median"}),
        (lambda: flare.CoordinateMedian(), {"name": "median"}),
        (lambda: flare.RobustAggregator("atm", trim=2), {"name": "atm", "trim": 2}),
        (lambda: flare.AngularTrimmedMean(trim=2), {"name": "atm", "trim": 2}),
        (
            lambda: flare.RobustAggregator([{"name": "norm_clipping", "norm": 3.0}, {"name": "median"}], server_lr=0.5),
            {
                "name": "norm_clipping + median",
                "stages": [{"name": "norm_clipping", "norm": 3.0}, {"name": "median"}],
                "server": {"server_lr": 0.5},
            },
        ),
        (lambda: None, {"name": "fedavg", "aggregator": "FLARE's own weighted mean"}),
    ],
)
def test_a_report_names_the_rule_with_its_options_however_it_was_asked_for(tmp_path, make, expected):
    assert aggregated_by(tmp_path, make()) == expected


MEAN = "nvflare.app_common.aggregators.intime_accumulate_model_aggregator.InTimeAccumulateWeightedAggregator"


@pytest.mark.parametrize(
    ("workflow", "identifier", "path", "name"),
    [
        ({"path": SAG, "args": {"aggregator_id": "mine"}}, "mine", "scapegoat.integrations.nvflare.Krum", "krum"),
        ({"path": SAG, "args": {}}, "aggregator", "scapegoat.integrations.nvflare.Krum", "krum"),
        ({"path": SAG, "args": {}}, "aggregator", MEAN, "fedavg"),
        ({"path": SAG, "args": {}}, "aggregator", "my_job.Own", "Own"),
        ({"path": "nvflare.app_common.workflows.fedavg.FedAvg"}, "aggregator", "my_job.Unused", "fedavg"),
        ({"path": "custom.Workflow", "args": {}}, "aggregator", "my_job.Unused", "fedavg"),
    ],
)
def test_an_aggregator_that_is_a_component_is_named_too(tmp_path, workflow, identifier, path, name):
    server = {"workflows": [workflow], "components": [{"id": identifier, "path": path, "args": {}}]}
    (tmp_path / "config_fed_server.json").write_text(json.dumps(server))
    assert rule_of(tmp_path)["name"] == name


@pytest.mark.parametrize(
    ("rule", "filters", "expected"),
    [
        ("fedavg", ["svt_privacy"], {"name": "svt_privacy"}),
        ("fedavg", [{"name": "svt_privacy", "gamma": 0.1}], {"name": "svt_privacy", "gamma": 0.1}),
        (
            "fedavg",
            ["percentile_privacy", {"name": "svt_privacy", "gamma": 0.1}],
            {"name": "percentile_privacy + svt_privacy", "svt_privacy": {"gamma": 0.1}},
        ),
        (
            "median",
            [{"name": "svt_privacy", "gamma": 0.1}],
            {"name": "svt_privacy + median", "rule": {"name": "median"}, "svt_privacy": {"gamma": 0.1}},
        ),
        ("median", [], {"name": "median"}),
    ],
)
def test_a_report_names_flares_filters_with_their_options(rule, filters, expected):
    assert defense_of({"name": rule}, [filter_component(one) for one in filters]) == expected


@pytest.mark.parametrize("wrong", ["dp", {"name": "svt_privacy", "gama": 1}])
def test_a_filter_or_option_that_flare_does_not_have_is_refused(wrong):
    with pytest.raises(InputError, match="--filter"):
        filter_component(wrong)


@pytest.mark.parametrize("wrong", ["job.py", "nothing.py:recipe", "package.module:recipe"])
def test_a_job_that_is_not_a_function_in_a_file_is_refused(wrong):
    with pytest.raises(InputError, match=r"write path/to/job\.py:function"):
        recipe_function(wrong)
