"""The lines of a plan, executed, do what was simulated; what a framework lacks they say."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
import torch
import yaml

from scapegoat.aggregation import parse as parse_rule
from scapegoat.aggregation import registry as rules
from scapegoat.auditing import candidates
from scapegoat.auditing.plan_lines import PRIVATE as PRIVATE_NAME
from scapegoat.auditing.plan_lines import lines
from scapegoat.errors import InputError
from scapegoat.experiments import Spec, parse
from scapegoat.optimizers import OptimizerOptions
from scapegoat.protections import registry as protections
from scapegoat.report.planned import Option
from tests.auditing.test_plan import DECAYED, PRIVATE, TODAY, option

RULES = [name for name, cls in rules.classes() if cls.__module__.startswith("scapegoat.")]
PROTECTIONS = [name for name, cls in protections.classes() if cls.__module__.startswith("scapegoat.")]


def built(chosen: Option, spec: Spec) -> tuple[Any, str]:
    """The strategy that the lines make, and the lines."""
    pytest.importorskip("flwr")
    text = lines(chosen, spec)["Flower server"]
    scope: dict[str, Any] = {}
    exec(text.split("strategy.start")[0], scope)
    return scope["strategy"], text


def federation(**more: Any) -> Spec:
    return parse({"federation": {"clients": 40, "malicious": 4, **more}})


@pytest.mark.parametrize("local", ["gradient", "epochs"])
@pytest.mark.parametrize("chosen", [TODAY, DECAYED, PRIVATE])
def test_the_lines_are_a_spec_and_python_that_scapegoat_takes(chosen, local):
    base = parse({"federation": {"local": {"name": local}}})
    do = lines(chosen, base)
    spec = parse(yaml.safe_load(do["Spec"]))
    assert spec.federation.rounds == chosen.rounds
    assert spec.canonical()["federation"].get("protect", []) == [dict(p) for p in chosen.protect]
    assert spec.defense.canonical() == chosen.rule
    for text in (do["Flower server"], do.get("Flower client", "")):
        ast.parse(text)
    assert ("Flower client" in do) == any(p["name"] == "dp_sgd" for p in chosen.protect)


@pytest.mark.parametrize("name", RULES)
def test_the_strategy_of_the_lines_has_the_rule_that_was_simulated(name):
    parts = parse_rule(name).parts()
    try:
        base = parse({"federation": {"clients": 40, "malicious": 1}, "defense": name})
    except InputError:
        base = parse({"federation": {"clients": 40, "malicious": 1}, "defense": [name, "median"]})
    chosen = option(base.defense.canonical(), clients=40)
    strategy, text = built(chosen, base)
    assert strategy.server.rule.canonical() == chosen.rule
    for part in parts:
        if part.asks_for is not None:
            asked = strategy.server.validate if part.asks_for == "score" else strategy.server.train_on_root
            with pytest.raises(NotImplementedError, match="records of the server's own"):
                asked({})
    assert ("probe_outputs" in text) == any(part.probes for part in parts)


@pytest.mark.parametrize("last", [{"name": "atm", "trim": 3}, {"name": "fang"}])
def test_a_pipeline_keeps_the_options_of_its_stages(last):
    stages = [{"name": "client_momentum", "beta": 0.7}, {"name": "norm_clipping"}, last]
    chosen = option(parse({"federation": {"clients": 40}, "defense": stages}).defense.canonical(), clients=40)
    strategy, _ = built(chosen, federation())
    assert strategy.server.rule.canonical() == chosen.rule


SERVERS = [
    {"optimizer": "adam", "lr": 0.02, "beta1": 0.5},
    {"optimizer": "adam", "lr": 0.01, "beta2": 0.9, "eps": 1e-6},
    {"optimizer": "adam", "lr": 0.01},
    {"optimizer": "momentum", "lr": 0.3, "momentum": 0.5},
    {"optimizer": "sgd", "lr": 0.5},
    {"optimizer": "sgd", "lr": 1.0},
]


@pytest.mark.parametrize("local", ["gradient", "epochs"])
@pytest.mark.parametrize("server", SERVERS)
def test_the_server_of_the_lines_steps_as_the_simulated_one(server, local):
    spec = federation(local={"name": local}, server=server, fraction=0.6)
    strategy, _ = built(DECAYED, spec)
    assert strategy.server.optimizer.options == spec.federation.server == OptimizerOptions(**server)
    assert strategy.server.kind == ("updates" if local == "gradient" else "arrays")
    assert strategy.fraction_train == 0.6


@pytest.mark.parametrize("server", SERVERS)
def test_the_steps_of_a_plan_are_in_its_lines_whatever_the_server_did_before(server):
    plan = replace(DECAYED, server=OptimizerOptions(**server).model_dump(mode="json"))
    spec = federation(server={"optimizer": "adam", "lr": 0.07})
    strategy, _ = built(plan, spec)
    assert strategy.server.optimizer.options == OptimizerOptions(**server)
    assert parse(yaml.safe_load(lines(plan, spec)["Spec"])).federation.server == OptimizerOptions(**server)


def test_local_epochs_have_the_step_of_their_own_default():
    spec = federation(local={"name": "epochs"})
    strategy, text = built(TODAY, spec)
    assert strategy.server.optimizer.options == spec.federation.server
    assert "server_optimizer" not in text


@pytest.mark.parametrize(
    "protect",
    [
        [{"name": "weight_decay", "rate": 0.005}],
        [{"name": "weight_decay", "rate": 0.005, "decoupled": True}, {"name": "cooling"}],
        [{"name": "cooling", "last": 0.1}],
    ],
)
def test_the_server_of_the_lines_protects_as_the_simulated_one(protect):
    chosen = option(protect=protect)
    strategy, _ = built(chosen, federation())
    assert [p.canonical() for p in strategy.server.protections] == [dict(p) for p in chosen.protect]


@pytest.mark.parametrize("name", PROTECTIONS)
def test_no_protection_is_dropped_without_a_word(name):
    do = lines(option(protect=[name]), federation())
    told = [line for text in (do["Flower server"], do.get("Flower client", "")) for line in text.splitlines()]
    named = [line for line in told if name in line]
    assert named or (name == PRIVATE_NAME and "PrivateStep" in do["Flower client"])


def test_what_flower_lacks_is_a_comment_with_its_options():
    protect = [{"name": "early_stopping", "patience": 7}, {"name": "mixup", "alpha": 0.4}]
    text = lines(option(protect=protect), federation())["Flower server"]
    assert "# The audit's server also had early_stopping (patience 7)" in text
    assert "# Clients also train with mixup (alpha 0.4)" in text
    late = lines(TODAY, federation(schedule={"name": "async"}))["Flower server"]
    assert "the audit's schedule was async" in late


def trained(spec: Spec, **options: Any) -> tuple[dict[str, Any], str, torch.nn.Module]:
    """What the client's lines leave behind after a round on 40 records, the lines, and the model."""
    pytest.importorskip("dp_accounting")
    text = lines(option(protect=[{"name": "dp_sgd", "clip": 0.7, "noise": 0.9, **options}]), spec)["Flower client"]
    model = torch.nn.Linear(5, 3)
    scope: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "records": torch.randn(40, 5),
        "labels": torch.randint(0, 3, (40,)),
    }
    exec(text, scope)
    return scope, text, model


@pytest.mark.parametrize(("size", "epochs", "steps"), [(8, 1, 5), (20, 3, 6)])
def test_a_client_of_the_lines_trains_with_the_batches_and_epochs_of_the_spec(size, epochs, steps):
    spec = federation(batch_size=size, local={"name": "epochs", "epochs": epochs})
    scope, _, _ = trained(spec, delta=1e-4)
    private = scope["private"]
    assert (private.batch_size, private.clip, private.noise, private.steps) == (size, 0.7, 0.9, steps)
    assert scope["epsilon"] == private.epsilon(delta=1e-4)
    assert scope["epsilon"] < private.epsilon(delta=1e-6)


def test_a_client_that_sends_gradients_takes_one_batch_and_leaves_the_step_to_the_server():
    scope, _, model = trained(federation(batch_size=16))
    assert scope["private"].steps == 1
    assert scope["private"].batch_size == 16
    assert [u.shape for u in scope["update"]] == [p.shape for p in model.parameters()]


def test_batches_of_a_fixed_size_are_said_to_be_drawn_otherwise():
    assert "account for that" in trained(federation(), sampling="fixed")[1]
    assert "account for that" not in trained(federation())[1]


@pytest.mark.parametrize("searched", [candidates.PRIVATE, candidates.MILD])
def test_what_a_search_writes_without_its_defaults_has_lines_too(searched):
    do = lines(replace(option(), protect=(searched,)), federation())
    assert f"noise={searched['noise']}" in do["Flower client"]
    assert "epsilon(delta=1e-05)" in do["Flower client"]
    assert parse(yaml.safe_load(do["Spec"])).federation.protect[0].noise == searched["noise"]


def test_without_noise_no_epsilon_is_promised():
    text = lines(option(protect=[{"name": "dp_sgd", "noise": 0.0}]), federation())["Flower client"]
    assert "epsilon" not in text
