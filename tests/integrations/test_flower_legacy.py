"""The rules on Flower's older strategy API."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.common import Code, FitRes, Parameters, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import SimpleClientManager

from scapegoat.accounting import record_epsilon
from scapegoat.errors import InputError, RunError
from scapegoat.integrations.flower import LegacyRobustAggregation
from scapegoat.integrations.shared.rounds import client_number

GLOBAL = [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(2, np.float32)]


class Manager:
    def __init__(self, clients: int = 4) -> None:
        self.clients = clients

    def num_available(self) -> int:
        return self.clients

    def sample(self, num_clients: int, min_num_clients: int | None = None, criterion=None):
        return [SimpleNamespace(cid=str(i)) for i in range(num_clients)]


def result(cid: str, parameters: Parameters, examples: int = 3):
    status = Status(Code.OK, "")
    return SimpleNamespace(cid=cid), FitRes(status, parameters, examples, {"loss": float(client_number(cid) % 7)})


def started(rule, **keywords) -> LegacyRobustAggregation:
    strategy = LegacyRobustAggregation(rule, **keywords)
    strategy.configure_fit(1, ndarrays_to_parameters(GLOBAL), Manager())
    return strategy


def test_the_median_of_the_updates_and_who_was_used():
    strategy = started("median", fit_metrics_aggregation_fn=lambda pairs: {"loss": sum(m["loss"] for _, m in pairs)})
    results = [
        result(str(cid), ndarrays_to_parameters([g - step for g in GLOBAL]))
        for cid, step in ((2, 1.0), (0, 2.0), (1, 9.0))
    ]
    results.append(result("4", ndarrays_to_parameters([g * np.float32(np.nan) for g in GLOBAL])))
    parameters, metrics = strategy.aggregate_fit(1, results, [])
    for before, after in zip(GLOBAL, parameters_to_ndarrays(parameters), strict=True):
        np.testing.assert_allclose(after, before - 2)
    assert metrics == {"loss": 3.0, "kept": 3, "dropped": 0, "set_aside": 1}
    assert "NaN" in strategy.history[0].set_aside[4]


def test_reordered_results_give_the_same_bytes():
    rng = np.random.default_rng(0)
    results = [
        result(cid, ndarrays_to_parameters([g + rng.normal(size=g.shape).astype(np.float32) for g in GLOBAL]))
        for cid in ("7", "ipv4:10.0.0.1", "3", "12")
    ]
    forward = started("atm").aggregate_fit(1, results, [])[0]
    backward = started("atm").aggregate_fit(1, results[::-1], [])[0]
    assert forward.tensors == backward.tensors


def test_the_noise_of_dp_follows_from_a_seed_that_nobody_chose():
    rng = np.random.default_rng(0)
    results = [
        result(cid, ndarrays_to_parameters([g + rng.normal(size=g.shape).astype(np.float32) for g in GLOBAL]))
        for cid in "1234"
    ]

    def noisy(**keywords) -> list[bytes]:
        rule = {"name": "dp", "clip": 1.0, "noise_multiplier": 1.0}
        return started(rule, **keywords).aggregate_fit(1, results, [])[0].tensors

    assert noisy() != noisy()
    assert noisy(seed=3) == noisy(seed=3)


def test_failures_are_named_and_nothing_usable_changes_nothing():
    strategy = started("fedavg")
    client, failed = result("5", Parameters([], "numpy.ndarray"))
    parameters, metrics = strategy.aggregate_fit(1, [], [(client, failed), RuntimeError("lost")])
    assert parameters is None
    assert metrics["kept"] == 0
    assert 5 in strategy.history[0].failed


def test_the_epsilon_is_that_of_the_share_that_was_really_picked():
    rule = {"name": "dp", "clip": 1.0, "noise_multiplier": 4.0}
    strategy = LegacyRobustAggregation(rule, fraction_fit=0.1, min_fit_clients=2)
    for server_round in (1, 2, 3):
        strategy.configure_fit(server_round, ndarrays_to_parameters(GLOBAL), Manager())
        results = [result(str(i), ndarrays_to_parameters([g + 1 for g in GLOBAL])) for i in range(2)]
        strategy.aggregate_fit(server_round, results, [])
        expected = record_epsilon(server_round, 4.0, 0.5, 1e-5, "fixed")
        assert strategy.history[-1].notes["epsilon"] == pytest.approx(expected, rel=0.01)


def test_too_few_clients_for_the_rule_end_the_run_with_what_is_needed():
    clients, asked = SimpleClientManager(), ndarrays_to_parameters(GLOBAL)
    strategy = LegacyRobustAggregation("atm", node_timeout=0.01)
    with pytest.raises(RunError, match=r"0 nodes are connected .* where 3 are needed: atm cannot work with fewer"):
        strategy.configure_fit(1, asked, clients)
    strategy = LegacyRobustAggregation("fedavg", min_available_clients=5, node_timeout=0.01)
    for configure in (strategy.configure_fit, strategy.configure_evaluate):
        with pytest.raises(RunError, match="where 5 are needed: min_available_clients"):
            configure(1, asked, clients)
    with pytest.raises(InputError, match="node_timeout"):
        LegacyRobustAggregation("fedavg", node_timeout=0)


def test_a_rule_asks_as_many_clients_as_it_needs():
    strategy = LegacyRobustAggregation({"name": "atm", "trim": 2}, fraction_fit=0.1)
    assert len(strategy.configure_fit(1, ndarrays_to_parameters(GLOBAL), Manager(10))) == 5
