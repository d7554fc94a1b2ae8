"""The FLARE aggregator: any rule on full weights and differences, whatever clients send and in whatever order."""

from __future__ import annotations

import itertools
import json
import logging

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DataKind
from nvflare.apis.event_type import EventType
from nvflare.app_common.abstract.fl_model import ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_opt.pt.lazy_tensor_dict import LazyTensorDict
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.fuel.utils.class_utils import instantiate_class
from safetensors.torch import save_file

import scapegoat as sg
from scapegoat.errors import InputError
from scapegoat.integrations import nvflare
from scapegoat.integrations.nvflare import AngularTrimmedMean, RobustAggregator
from scapegoat.integrations.nvflare.arrays import FlareLayout
from scapegoat.integrations.shared.hostile import read_lines
from tests.integrations.nvflare_fakes import Net, Workflow, differences, model, reply, shareable, trained

NAMES = ("a.weight", "a.bias")
RULES = ["fedavg", "median", "atm", "reputation_atm", [{"name": "norm_clipping"}, {"name": "trimmed_mean", "trim": 1}]]


def flat(params):
    return np.concatenate([np.asarray(params[name]).reshape(-1) for name in NAMES])


def clients(given, count=6):
    return {f"site-{i}": trained(given, seed=10 + i) for i in range(1, count + 1)}


def full(given, count=6):
    return [reply(name, params) for name, params in clients(given, count).items()]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("send", ["weights", "differences"])
def test_the_next_model_is_the_old_one_minus_what_the_rule_says(rule, send):
    given = model()
    sent = clients(given)
    replies = [
        reply(name, params) if send == "weights" else differences(name, params, given) for name, params in sent.items()
    ]
    found = Workflow(RobustAggregator(rule, seed=0), given).round(replies)
    updates = torch.from_numpy(np.stack([flat(given) - flat(params) for params in sent.values()]))
    expected = flat(given) - sg.aggregation.parse(rule)(updates).update.numpy()
    np.testing.assert_allclose(flat(found), expected, atol=1e-6)


@pytest.mark.parametrize("rule", ["fedavg", "atm", "reputation_atm"])
def test_replies_in_any_order_give_the_same_bytes(rule):
    given = model()
    seen = set()
    for order in itertools.islice(itertools.permutations(full(given, 5)), 0, 120, 17):
        found = Workflow(RobustAggregator(rule, seed=0), given).round(order)
        seen.add(b"".join(np.ascontiguousarray(found[name]).tobytes() for name in found))
    assert len(seen) == 1


def broken(given):
    nan = trained(given, 1)
    nan["a.bias"] = nan["a.bias"] * np.nan
    return {
        "nan": (nan, "NaN or infinite values"),
        "shape": ({**trained(given, 1), "a.bias": np.zeros(5, np.float32)}, "shape (5,)"),
        "partial": ({"a.bias": given["a.bias"]}, "array 'a.weight' is missing"),
        "more": ({**trained(given, 1), "extra": np.zeros(3)}, "'extra', which was not sent out"),
        "hundredfold": ({n: np.zeros((100, *v.shape), np.float32) for n, v in given.items()}, "bytes where"),
        "huge": ({**trained(given, 1), "a.bias": np.full(4, 1e30, np.float32)}, "too large to square"),
        "text": ({**trained(given, 1), "a.bias": "hello"}, "as str, not as a NumPy array"),
        "list": ([1, 2, 3], "parameters as list"),
        "words": ({**trained(given, 1), "a.bias": np.array(["x"] * 4)}, "of type <U1"),
        "numbers": ({1: np.zeros(3)}, "a parameter without a name"),
        "counts": ({**trained(given, 1), "norm.num_batches_tracked": np.array(-5)}, "negative values in the buffer"),
    }


@pytest.mark.parametrize("kind", list(broken(model())))
def test_a_malformed_reply_is_set_aside_and_named_and_the_others_go_on(kind, caplog):
    given = model()
    params, reason = broken(given)[kind]
    without = Workflow(AngularTrimmedMean(trim=1, seed=0), given).round(full(given))
    aggregator = AngularTrimmedMean(trim=1, seed=0)
    with caplog.at_level(logging.WARNING):
        found = Workflow(aggregator, given).round([*full(given), reply("site-0", params)])
    assert aggregator.history[0].set_aside.keys() == {"site-0"}
    assert any("client site-0 set aside: sent" in text and reason in text for text in caplog.messages)
    for name in found:
        np.testing.assert_array_equal(found[name], without[name])


@pytest.mark.parametrize("steps", [-1, float("nan"), "many", 1e400])
def test_a_weight_that_is_none_sets_the_reply_aside(steps):
    aggregator = RobustAggregator("fedavg")
    workflow = Workflow(aggregator, model())
    workflow.round([*full(model()), reply("odd", trained(model(), 3), NUM_STEPS_CURRENT_ROUND=steps)])
    assert "NUM_STEPS_CURRENT_ROUND" in aggregator.history[0].set_aside["odd"]


def test_a_round_without_a_usable_reply_leaves_the_model_as_it_is(caplog):
    given = model()
    workflow = Workflow(RobustAggregator("median"), given)
    with caplog.at_level(logging.WARNING):
        found = workflow.round([])
    for name in given:
        np.testing.assert_array_equal(found[name], given[name])
    assert "round 1: the global model stays as it is: no reply could be used" in " ".join(caplog.messages)
    assert flat(workflow.round(full(given))) != pytest.approx(flat(given))


def test_too_few_replies_for_the_rule_leave_the_model_as_it_is():
    aggregator = AngularTrimmedMean(trim=2)
    Workflow(aggregator, model()).round(full(model(), 4))
    assert "cannot work with 4 replies" in aggregator.history[0].skipped


def test_a_client_that_contradicts_itself_is_set_aside_and_equal_copies_count_once():
    given = model()
    aggregator = RobustAggregator("fedavg")
    twice = [*full(given), reply("site-1", trained(given, 11)), reply("site-2", trained(given, 99))]
    Workflow(aggregator, given).round(twice)
    assert aggregator.history[0].set_aside == {"site-2": "2 replies that contradict each other"}
    assert "site-1" in aggregator.history[0].nodes


def test_weights_count_by_steps_where_the_rule_is_asked_to():
    given = model()
    sent = clients(given, 2)
    replies = [reply(n, p, NUM_STEPS_CURRENT_ROUND=w) for (n, p), w in zip(sent.items(), (1, 3), strict=True)]
    found = Workflow(nvflare.Mean(weighted=True), given).round(replies)
    one, two = (flat(params) for params in sent.values())
    np.testing.assert_allclose(flat(found), (one + 3 * two) / 4, atol=1e-6)


def test_buffers_of_differences_are_added_and_whole_numbers_stay_whole():
    given = model()
    replies = [differences(name, params, given) for name, params in clients(given).items()]
    for one in replies:  # as FLARE's PercentilePrivacy leaves them
        one.params["norm.num_batches_tracked"] = np.float64(3.0)
    found = Workflow(RobustAggregator("median"), given).round(replies)
    assert found["norm.num_batches_tracked"] == 10
    assert found["norm.num_batches_tracked"].dtype == np.int64
    means = [params["norm.running_mean"] for params in clients(given).values()]
    np.testing.assert_allclose(found["norm.running_mean"], np.median(means, 0), atol=1e-6)


def test_torch_tensors_come_back_as_torch_tensors_with_the_same_numbers():
    given = model()
    tensors = {name: torch.tensor(value) for name, value in given.items()}
    replies = [reply(n, {k: torch.tensor(v) for k, v in p.items()}) for n, p in clients(given).items()]
    found = Workflow(RobustAggregator("atm"), tensors).round(replies)
    expected = Workflow(RobustAggregator("atm"), given).round(full(given))
    for name in expected:
        assert isinstance(found[name], torch.Tensor)
        np.testing.assert_array_equal(found[name].numpy(), expected[name])


def test_tensors_that_wait_on_a_disk_are_read_when_they_are_needed(tmp_path):
    given = model()
    replies = []
    for name, params in clients(given).items():
        folder = tmp_path / name
        folder.mkdir()
        save_file({key: torch.tensor(value) for key, value in params.items()}, folder / "t.safetensors")
        on_disk = LazyTensorDict({key: (str(folder / "t.safetensors"), key) for key in params}, str(folder))
        replies.append(reply(name, {key: on_disk.make_lazy_ref(key) for key in params}))
    found = Workflow(RobustAggregator("atm"), given).round(replies)
    expected = Workflow(RobustAggregator("atm"), given).round(full(given))
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize("copies", [1, 2])
def test_a_tensor_that_is_gone_from_the_disk_sets_its_client_aside(tmp_path, copies):
    lazy = LazyTensorDict({"a.bias": (str(tmp_path / "none"), "a.bias")}, str(tmp_path))
    aggregator = RobustAggregator("atm")
    gone = reply("gone", {**trained(model(), 5), "a.bias": lazy.make_lazy_ref("a.bias")})
    Workflow(aggregator, model()).round([*full(model()), *[gone] * copies])
    said = aggregator.history[0].set_aside["gone"]
    assert "cannot be read" in said if copies == 1 else "contradict" in said


def test_metrics_are_those_that_all_kept_clients_report_and_nobody_is_told_who_was_kept(tmp_path):
    given = model()
    replies = full(given, 4)
    for i, one in enumerate(replies):
        one.metrics = {"loss": float(i), "odd": float("nan") if i == 0 else 1.0, "text": "x"}
    workflow = Workflow(RobustAggregator("fedavg"), given, folder=tmp_path)
    workflow.round(replies)
    assert workflow.result.metrics == {"loss": 1.5}
    assert workflow.result.meta == {"nr_aggregated": 4}
    (line,) = [json.loads(text) for text in (tmp_path / "scapegoat_rounds.jsonl").read_text().splitlines()]
    assert line["kept"] == [f"site-{i}" for i in range(1, 5)]
    assert line["metrics"] == {"loss": 1.5}


def test_scatter_and_gather_names_clients_by_their_peer_context():
    given = model()
    aggregator = RobustAggregator("median")
    workflow = Workflow(aggregator, given)
    workflow.begin()
    for name, params in clients(given).items():
        assert aggregator.accept(shareable(name, params, workflow.manager), workflow.context)
    metrics_only = shareable("odd", {"loss": 1.0}, workflow.manager, kind=DataKind.METRICS)
    assert not aggregator.accept(metrics_only, workflow.context)
    found = workflow.end()
    assert list(aggregator.history[0].nodes) == sorted(clients(given))
    assert aggregator.history[0].set_aside == {"odd": "DataKind.METRICS, not weights or their difference"}
    expected = Workflow(RobustAggregator("median"), given).round(full(given))
    np.testing.assert_array_equal(flat(found), flat(expected))


def test_scatter_and_gather_hands_over_the_steps_that_clients_weigh_by():
    given, sent = model(), clients(model(), 2)
    aggregator = nvflare.Mean(weighted=True)
    workflow = Workflow(aggregator, given)
    workflow.begin()
    for (name, params), steps in zip(sent.items(), (1, 3), strict=True):
        made = shareable(name, params, workflow.manager, meta={"NUM_STEPS_CURRENT_ROUND": steps})
        aggregator.accept(made, workflow.context)
    found = workflow.end()
    one, two = (flat(params) for params in sent.values())
    np.testing.assert_allclose(flat(found), (one + 3 * two) / 4, atol=1e-6)


def test_a_client_that_was_set_aside_is_not_heard_again_in_the_round():
    given = model()
    aggregator = RobustAggregator("fedavg")
    good = reply("site-0", trained(given, 50))
    found = Workflow(aggregator, given).round([reply("site-0", [1, 2, 3]), *full(given), good])
    assert list(aggregator.history[0].set_aside) == ["site-0"]
    assert "site-0" not in aggregator.history[0].nodes
    expected = Workflow(RobustAggregator("fedavg"), given).round(full(given))
    np.testing.assert_array_equal(flat(found), flat(expected))


def test_the_server_cools_over_the_rounds_of_the_job():
    workflow = Workflow(RobustAggregator("fedavg", cooling=True), model())
    workflow.context.set_prop(AppConstants.NUM_ROUNDS, 2, private=True, sticky=True)
    moved = []
    for _ in range(2):
        before = workflow.params
        after = workflow.round([reply("site-1", {**before, "a.bias": before["a.bias"] + np.float32(1)})])
        moved.append(float((after["a.bias"] - before["a.bias"]).mean()))
    # Half a cosine: the whole step in the first of two rounds, half of it in the second.
    assert moved == pytest.approx([1.0, 0.5], abs=1e-6)


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_the_share_of_clients_that_a_round_asks_reaches_the_accountant_of_dp(rate):
    aggregator = RobustAggregator("dp", clip=1.0, sigma=1.0, sampling_rate=rate)
    Workflow(aggregator, model()).round(full(model()))
    expected = RobustAggregator("dp", clip=1.0, sigma=1.0)
    expected.server.sampling_rate = rate
    Workflow(expected, model()).round(full(model()))
    assert aggregator.server.sampling_rate == rate
    assert aggregator.history[0].notes["epsilon"] == expected.history[0].notes["epsilon"]


def test_the_seed_is_drawn_at_random_unless_one_is_given():
    seeds = {RobustAggregator("median").server.seed for _ in range(3)}
    assert len(seeds) == 3
    assert RobustAggregator("median", seed=0).server.seed == 0


def test_a_hundredfold_update_does_not_move_a_robust_rule_far():
    given = model()
    loud = {name: v + 100 * (trained(given, 7)[name] - v) for name, v in given.items()}
    found = Workflow(nvflare.CoordinateMedian(), given).round([*full(given, 9), reply("loud", loud)])
    quiet = Workflow(nvflare.CoordinateMedian(), given).round(full(given, 9))
    assert np.abs(flat(found) - flat(quiet)).max() < 0.1


@pytest.mark.parametrize(
    "aggregator",
    [
        AngularTrimmedMean(trim=2, server_optimizer="momentum", server_lr=0.5, seed=3),
        RobustAggregator("reputation_atm", trim=1, weight_decay={"rate": 0.01, "decoupled": True}),
        RobustAggregator([{"name": "norm_clipping"}, {"name": "atm", "trim": 2}], buffer_merge="mean"),
        nvflare.Fang(validate="json:dumps"),
    ],
    ids=["named", "options", "pipeline", "function"],
)
def test_what_flare_writes_into_a_job_builds_the_same_aggregator(aggregator, tmp_path):
    script = tmp_path / "client.py"
    script.write_text("")
    recipe = FedAvgRecipe(name="job", model=Net(), min_clients=2, train_script=str(script), aggregator=aggregator)
    recipe.export(str(tmp_path / "out"))
    (path,) = (tmp_path / "out").glob("**/config_fed_server.json")
    written = json.loads(path.read_text())["workflows"][0]["args"]["aggregator"]
    built = instantiate_class(written["path"], written["args"])
    assert type(built) is type(aggregator)
    assert built.server.rule.canonical() == aggregator.server.rule.canonical()
    assert built.server.optimizer.options == aggregator.server.optimizer.options
    assert built.server.protections == aggregator.server.protections
    assert built.server.buffer_merge == aggregator.server.buffer_merge
    assert built._validate == aggregator._validate


def test_a_rule_with_data_of_the_servers_own_asks_the_function_that_is_named():
    given = model()
    aggregator = nvflare.Fang(validate="tests.integrations.test_nvflare_aggregator:judged")
    Workflow(aggregator, given).round(full(given))
    assert aggregator.history[0].skipped is None


def judged(arrays):
    return float(np.square(arrays["a.bias"]).sum()), 0.0


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"rule": "amt"}, "amt"),
        ({"rule": "atm", "trimm": 1}, "trimm"),
        ({"rule": "{'name'"}, "is not JSON"),
        ({"rule": ["median"], "trim": 1}, "a pipeline's options"),
        ({"rule": "fang"}, "validate"),
        ({"rule": "fang", "validate": lambda arrays: (0.0, 0.0)}, "a function at the top of a module"),
        ({"rule": "atm", "server_lr": -1}, "server_optimizer"),
    ],
)
def test_wrong_options_are_refused_in_one_line(keywords, said):
    with pytest.raises(InputError) as caught:
        RobustAggregator(**keywords)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_rule_has_a_named_aggregator():
    for name, _ in sg.aggregation.registry.classes():
        extra = {"fang": {"validate": "json:dumps"}, "fltrust": {"train_on_root": "json:dumps"}}.get(name, {})
        found = [a for a in dir(nvflare) if getattr(getattr(nvflare, a), "rule_name", None) == name]
        assert len(found) == 1
        assert getattr(nvflare, found[0])(**extra).server.rule.name == name
    with pytest.raises(AttributeError, match="AngularTrimmedMean"):
        nvflare.Nobody  # noqa: B018


def test_a_reply_of_another_kind_than_the_others_counts_as_what_it_says():
    given = model()
    sent = clients(given)
    mixed = [reply(n, p) if i % 2 else differences(n, p, given) for i, (n, p) in enumerate(sent.items())]
    found = Workflow(RobustAggregator("fedavg"), given).round(mixed)
    np.testing.assert_allclose(flat(found), np.mean([flat(p) for p in sent.values()], 0), atol=1e-6)
    assert {one.params_type for one in mixed} == {ParamsType.FULL, ParamsType.DIFF}


def test_who_was_asked_and_sent_no_model_is_named_in_the_log_and_in_the_rounds_file(tmp_path, caplog):
    given = model()
    workflow = Workflow(RobustAggregator("median"), given, folder=tmp_path)
    workflow.begin(asked=["site-1", "site-2", "site-3", "site-4"])
    for number in (1, 2):
        workflow.aggregator.accept_model(reply(f"site-{number}", trained(given, number)))
    workflow.tell(AppEventType.AFTER_CONTRIBUTION_ACCEPT, "site-3")  # its task ended in an error: there is no result
    workflow.end()
    said = " ".join(caplog.messages)
    assert "round 1: client site-3 failed: its task ended in an error" in said
    assert "round 1: client site-4 silent: it was asked, and no model came" in said
    (line,) = read_lines(tmp_path / "scapegoat_rounds.jsonl")
    assert (list(line["failed"]), line["silent"]) == (["site-3"], ["site-4"])
    workflow.begin(asked=["site-1"])
    workflow.aggregator.accept_model(reply("site-1", trained(given, 1)))
    workflow.end()
    assert (workflow.aggregator.history[-1].failed, workflow.aggregator.history[-1].silent) == ({}, ())


def waiting(folder, **tensors):
    """Tensors on a disk as FLARE hands them over."""
    folder.mkdir()
    save_file(tensors, folder / "t.safetensors")
    on_disk = LazyTensorDict({key: (str(folder / "t.safetensors"), key) for key in tensors}, str(folder))
    return {key: on_disk.make_lazy_ref(key) for key in tensors}


@pytest.mark.parametrize("copies", [1, 2])
def test_a_huge_tensor_on_a_disk_is_refused_before_it_is_read(tmp_path, monkeypatch, copies):
    lazy, read = waiting(tmp_path / "huge", **{"a.bias": torch.zeros(4000)}), []
    monkeypatch.setattr(type(lazy["a.bias"]), "materialize", lambda one: read.append(one))
    aggregator = RobustAggregator("atm")
    odd = reply("huge", {**trained(model(), 5), **lazy})
    Workflow(aggregator, model()).round([*full(model()), *[odd] * copies])
    said = aggregator.history[0].set_aside["huge"]
    assert "bytes where" in said if copies == 1 else "contradict" in said
    assert read == []


@pytest.mark.parametrize(
    ("kind", "size"),
    [(torch.float32, 4), (torch.float64, 8), (torch.bfloat16, 2), (torch.bool, 1), (torch.int16, 2), (torch.int64, 8)],
)
def test_the_size_of_a_tensor_on_a_disk_is_that_of_its_numbers(tmp_path, kind, size):
    lazy = waiting(tmp_path / "disk", x=torch.zeros(3, 5).to(kind))
    assert FlareLayout(model()).size_of(lazy["x"]) == 15 * size


def test_a_job_in_which_no_round_changed_the_model_says_so_at_its_end(caplog):
    workflow = Workflow(nvflare.Krum(), model())
    workflow.round(full(model(), 3))
    with caplog.at_level(logging.ERROR):
        workflow.aggregator.handle_event(EventType.END_RUN, workflow.context)
    assert "the job ends with the model that it began with: no round of 1 changed the model" in " ".join(
        caplog.messages
    )
    caplog.clear()
    workflow.round(full(model(), 8))
    workflow.aggregator.handle_event(EventType.END_RUN, workflow.context)
    assert not caplog.messages or "ends with the model" not in " ".join(caplog.messages)
