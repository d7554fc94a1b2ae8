"""Strategies inside Flower's own simulation."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray")

from scapegoat.integrations.flower.live.processes import free_port

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "flower"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
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
    command = [sys.executable, "-c", textwrap.dedent(APP)]
    ended = subprocess.run(
        command, env={**os.environ, **QUIET}, capture_output=True, text=True, check=False, timeout=240
    )
    told = [line for line in ended.stdout.splitlines() if line.startswith("TOLD")]
    assert told, ended.stderr[-2000:]
    assert json.loads(told[0].removeprefix("TOLD")) == [[2.0, 2.0, 2.0], [1, 1]]


def test_flwr_run_with_its_two_nodes_ends_with_what_is_needed(tmp_path):
    """As from a clone, without installing the app's dependencies, by a SuperLink of our own."""
    shutil.copytree(EXAMPLE, tmp_path / "app", ignore=shutil.ignore_patterns(".flwr", "__pycache__"))
    served = tmp_path / "app" / "hospital_federation" / "server_app.py"
    text = served.read_text()
    assert "fraction_evaluate=1.0" in text
    served.write_text(text.replace("fraction_evaluate=1.0", "fraction_evaluate=1.0, node_timeout=2.0"))
    port = free_port()
    (tmp_path / "config.toml").write_text(
        f'[superlink]\ndefault = "ours"\n\n[superlink.ours]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    scripts = Path(sys.executable).parent
    told = QUIET | {"FLWR_HOME": str(tmp_path), "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    environment = {**os.environ, **told, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    serve = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess", "--host", "127.0.0.1"]
    serve += ["--port", str(port), "--control-api-address", f"127.0.0.1:{free_port()}"]
    with (tmp_path / "superlink.log").open("wb") as log:
        link = subprocess.Popen(serve, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not answers(port) and time.monotonic() < deadline:
            time.sleep(0.2)
        command = ["flwr", "run", str(tmp_path / "app"), "--stream"]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    finally:
        os.killpg(link.pid, signal.SIGTERM)
        link.wait(60)
    words = " ".join((ended.stdout + ended.stderr).split())
    assert "2 nodes are connected and no more came within 2 s, where 3 are needed: atm cannot work with fewer" in words
    assert "num-supernodes=10" in words


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
