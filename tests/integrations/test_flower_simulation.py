"""Strategies inside Flower's own simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray")

APP = """
import json
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from scapegoat.integrations.flower import CoordinateMedian

client, server = ClientApp(), ServerApp()

@client.train()
def train(message, context):
    node = context.node_config["partition-id"]
    value = message.content["arrays"]["w"].numpy() + (np.nan if node == 3 else node)
    content = {"arrays": ArrayRecord({"w": Array(value)}), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)

@server.main()
def main(grid, context):
    strategy = CoordinateMedian(fraction_evaluate=0.0)
    result = strategy.start(grid, ArrayRecord({"w": Array(np.zeros(3, np.float32))}), num_rounds=2)
    asides = [len(report.set_aside) for report in strategy.history]
    print("TOLD", json.dumps([result.arrays["w"].numpy().tolist(), asides]))

run_simulation(server, client, num_supernodes=4, backend_config={
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2, "include_dashboard": False}})
"""

pytestmark = [pytest.mark.flower, pytest.mark.ray]


def test_a_strategy_runs_in_flowers_simulation():
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", textwrap.dedent(APP)]
    ended = subprocess.run(
        command, env={**os.environ, **quiet}, capture_output=True, text=True, check=False, timeout=240
    )
    told = [line for line in ended.stdout.splitlines() if line.startswith("TOLD")]
    assert told, ended.stderr[-2000:]
    assert json.loads(told[0].removeprefix("TOLD")) == [[2.0, 2.0, 2.0], [1, 1]]
