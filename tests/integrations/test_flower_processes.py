"""Federations of real processes that talk over the loopback interface."""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import json
import math
import os
import shutil
import signal
import ssl
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import scapegoat as sg
from scapegoat.errors import InputError, RunError
from scapegoat.experiments import RunStore, parse
from scapegoat.integrations.flower.live import sealed
from scapegoat.integrations.flower.live.audit import Where, audit_app, audit_spec, is_loopback
from scapegoat.integrations.flower.live.processes import LiveFederation, free_port
from scapegoat.integrations.flower.live.quiet import quiet
from scapegoat.integrations.flower.live.wrapper import read_app, shipped_files, wrap_app
from scapegoat.integrations.shared.environment import minimal, passed
from scapegoat.integrations.shared.running import settings
from scapegoat.tasks import Classification
from tests.integrations.private import assert_private

HERE = Path(__file__).parent
EXAMPLE = HERE.parent.parent / "examples" / "flower"

BEHAVIOURS = ("honest", "honest", "nan", "wrong shape", "hundredfold", "unreadable", "late", "killed")

pytestmark = pytest.mark.flower


def still_running(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SCAPEGOAT_FEDERATION={mark}".encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return [pid for pid in found if Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"]


def test_training_goes_on_whatever_single_nodes_do_and_the_log_names_them(tmp_path):
    result = tmp_path / "result.json"
    nodes = [
        {"partition-id": i, "behaviour": behaviour, "folder": str(tmp_path)} for i, behaviour in enumerate(BEHAVIOURS)
    ]
    faulty, told = HERE / "faulty-app", {"result": str(result)}
    files = shipped_files(faulty, tmp_path)
    app = wrap_app(faulty, files, tmp_path / "app", tmp_path / "rounds.jsonl", "arrays", told)
    with LiveFederation(tmp_path / "live", nodes) as federation:
        names = dict(zip(federation.node_ids, BEHAVIOURS, strict=True))
        victim = next(c for c in federation.children if c.name == f"node-{BEHAVIOURS.index('killed')}")

        def kill() -> None:
            if (tmp_path / "training").exists() and victim.running:
                os.killpg(victim.popen.pid, signal.SIGKILL)
                victim.popen.wait()

        log = federation.run_app(app, 180, kill).read_text()
        mark = federation._mark
    assert not still_running(mark)
    told = json.loads(result.read_text())
    assert told["value"] == 3.0
    history = told["history"]
    for report in history:
        aside = {names[int(node)]: reason for node, reason in report["set_aside"].items()}
        assert set(aside) == {"nan", "wrong shape", "hundredfold", "unreadable"}
        assert "NaN" in aside["nan"]
        assert "shape" in aside["wrong shape"]
        assert "bytes" in aside["hundredfold"]
        assert "not an array" in aside["unreadable"]
        assert [names[node] for node in report["nodes"]].count("honest") == 2
    assert sorted(names[node] for node in history[0]["silent"]) == ["killed", "late"]
    assert all("killed" not in [names[node] for node in report["nodes"]] for report in history)
    assert "late" in [names[node] for node in history[2]["nodes"]]
    assert "came too late" in log
    for node, behaviour in names.items():
        if behaviour != "honest":
            assert f"node {node}" in log


def test_a_live_federation_finds_what_the_simulator_finds(tmp_path):
    """The same spec, a rule with memory and decay, gives the same rows, choices and scores, process by process."""
    spec = {
        "data": {"name": "hospital", "records": 1200, "features": 60, "classes": 8, "validation": 50},
        "model": {"name": "mlp", "hidden": [16]},
        "federation": {
            "clients": 5,
            "malicious": 1,
            "fraction": 0.8,
            "rounds": 3,
            "batch_size": 32,
            "protect": [{"name": "weight_decay", "rate": 0.05}],
        },
        "attack": {"name": "gradient_ascent", "targets": 60, "mask": 40},
        "defense": {"name": "reputation_atm", "trim": 1},
    }
    live = audit_spec(spec, tmp_path, timeout=180)
    simulated, undecayed = sg.run(spec), sg.run(parse(spec, ["federation.protect=[]"]))
    ours, theirs = live.targets.to_pydict(), simulated.targets.to_pydict()
    for column in ("record", "label", "wrong_label", "member", "client"):
        assert ours[column] == theirs[column]
    np.testing.assert_allclose(ours["score_final"], theirs["score_final"], rtol=1e-4, atol=1e-5)
    assert not np.allclose(ours["score_final"], undecayed.targets["score_final"].to_numpy(), rtol=1e-2)
    ours, theirs = live.rounds.to_pydict(), simulated.rounds.to_pydict()
    for column in ("round", "clients", "malicious", "kept", "rejected"):
        assert ours[column] == theirs[column]
    np.testing.assert_allclose(np.concatenate(ours["norm"]), np.concatenate(theirs["norm"]), rtol=1e-3)
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-4)
    assert live.summary["test_accuracy"] == pytest.approx(simulated.summary["test_accuracy"])
    assert live.summary["membership"]["auc"] == pytest.approx(simulated.summary["membership"]["auc"], abs=1e-3)
    assert RunStore(tmp_path).finished() == [live.summary["spec_hash"]]
    assert_private(live.directory)
    sg.report.write_html(sg.report.build(tmp_path), tmp_path / "report.html")
    assert "gradient_ascent" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(("strategy", "defense", "kept"), [("AngularTrimmedMean", "atm", 2), ("FedAvg", "fedavg", 4)])
def test_a_users_app_is_audited_as_it_is(tmp_path, strategy, defense, kept):
    before = {path: path.read_bytes() for path in EXAMPLE.rglob("*.py")}
    run = audit_app(
        EXAMPLE,
        "hospital_federation.audit:material",
        {"name": "fedpoisonmia"},
        tmp_path,
        nodes=4,
        run_config={"num-server-rounds": 2, "strategy": strategy},
        timeout=180,
    )
    assert {path: path.read_bytes() for path in EXAMPLE.rglob("*.py")} == before
    assert run.summary["rounds"] == 2
    assert run.summary["live"] == {
        "observed_rounds": 2,
        "skipped_rounds": 0,
        "failed_replies": 0,
        "silent_replies": 0,
        "set_aside_replies": 0,
        "unbounded_rounds": 0,
    }
    rows = run.rounds.to_pylist()
    for row in rows:
        assert row["clients"].count(3) == 1
        assert [c for c, hostile in zip(row["clients"], row["malicious"], strict=True) if hostile] == [3]
        assert sum(row["kept"]) == kept
        assert not any(row["rejected"])
        assert len(row["norm"]) == len(row["mean_angle"]) == 4
        assert all(norm > 0 for norm in row["norm"])
        assert all(0 < angle < math.pi for angle in row["mean_angle"])
        assert dict(row["attack_notes"])["norm_ratio"] == pytest.approx(1.0, abs=0.5)
    assert 0 <= run.summary["test_accuracy"] <= 1
    assert run.summary["defense"] == defense
    assert run.spec["federation"]["hostile"] == 3
    assert_private(run.directory)


def test_a_federation_that_runs_already_is_joined_with_one_hostile_node(tmp_path):
    nodes = [{"partition-id": number, "num-partitions": 4} for number in range(3)]
    with LiveFederation(tmp_path / "theirs", nodes, sealed=False) as theirs:
        run = audit_app(
            EXAMPLE,
            "hospital_federation.audit:material",
            "passive",
            tmp_path / "ours",
            nodes=4,
            run_config={"num-server-rounds": 1, "strategy": "FedAvg"},
            where=Where(theirs.address),
            timeout=180,
        )
        assert all(child.running for child in theirs.children)
    (row,) = run.rounds.to_pylist()
    assert sum(row["malicious"]) == 1
    assert len(row["clients"]) == 4
    assert dict(row["defense_notes"]) == {"kept_unknown": 1.0}
    assert run.summary["aggregation"]["malicious_kept_rate"] is None
    assert run.spec["live"]["superlink"] == "named by the user"


def test_a_federation_behind_tls_is_joined_with_a_certificate_named_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    authority, certificate, key = certificates(tmp_path)
    nodes = [{"partition-id": number, "num-partitions": 3} for number in range(2)]
    port = free_port()
    link = LiveFederation(tmp_path / "link", [])
    secure = ["--ssl-ca-certfile", str(authority), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)]
    try:
        (tmp_path / "link").mkdir()
        link.spawn("superlink", ["flower-superlink", *secure, "--host", "127.0.0.1", "--port", str(port)])
        where = Where(f"127.0.0.1:{port}", Path("ca.pem"))
        with LiveFederation(tmp_path / "theirs", nodes, where.superlink, Path("ca.pem"), insecure=False):
            run = audit_app(
                EXAMPLE,
                "hospital_federation.audit:material",
                "passive",
                tmp_path / "ours",
                nodes=3,
                run_config={"num-server-rounds": 1, "strategy": "FedAvg"},
                where=where,
                timeout=180,
            )
    finally:
        link.stop()
    (row,) = run.rounds.to_pylist()
    assert sum(row["malicious"]) == 1
    assert len(row["clients"]) == 3


def test_an_audit_takes_no_app_and_no_node_from_another_process(tmp_path, monkeypatch):
    """A process that can reach the ports of an audit, and even trusts its certificate, has nothing run there."""
    monkeypatch.setenv("SOME_API_TOKEN", "not for children")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for children")
    with LiveFederation(tmp_path / "live", [{"partition-id": 0}]) as federation:
        authority = federation._private / "authority.pem"
        stranger = tmp_path / "stranger"
        stranger.mkdir()
        command = str(Path(sys.executable).with_name("flwr"))
        environment = {"PATH": os.environ["PATH"], "HOME": str(stranger), **quiet(stranger)}
        security = f'root-certificates = "{authority}"'
        connection = f'[superlink]\ndefault = "x"\n[superlink.x]\naddress = "{federation.address}"\n{security}\n'
        (stranger / "config.toml").write_text(connection)
        told = [command, "run", str(HERE / "faulty-app"), "x"]
        sent = subprocess.run(told, env=environment, capture_output=True, text=True, timeout=90, check=False)
        assert sent.returncode != 0
        assert "started run" not in sent.stdout
        node = federation.children[-1].popen.args
        ports = (federation.address.split(":")[1], node[node.index("--port") + 1])
        trusting = ssl.create_default_context(cafile=str(authority))
        for port, path in itertools.product(ports, ("/", "/health", "/docs", "/openapi.json")):
            for headers in ({}, {sealed.HEADER: "a guess"}):
                asked = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers=headers)
                with pytest.raises(urllib.error.HTTPError, match="401"):
                    urllib.request.build_opener(
                        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting)
                    ).open(asked, timeout=30)
        assert runs(federation) == []
        for name in ("key", "server.key"):
            assert (federation._private / name).stat().st_mode & 0o077 == 0
        assert federation._private.stat().st_mode & 0o077 == 0
        pids = federation.leftovers()
        assert len(pids) >= 3
        for pid in pids:
            assert b"not for children" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert not federation._private.exists()


def runs(federation):
    told = [shutil.which("flwr", path=federation.environ()["PATH"]), "ls", "scapegoat", "--format", "json"]
    listed = subprocess.run(told, env=federation.environ(), capture_output=True, timeout=60, check=False)
    return json.loads(listed.stdout)["runs"]


def test_a_superlink_that_answers_strangers_is_not_used(tmp_path, monkeypatch):
    lost = "import os; os.environ.pop('SCAPEGOAT_SEAL')\nmain("
    monkeypatch.setattr(sealed, "_SHIM", sealed._SHIM.replace("main(", lost))
    with (
        pytest.raises(RunError, match="answers processes that are not of this audit"),
        LiveFederation(tmp_path, [], forkserver=False),
    ):
        pass


def certificates(folder):
    """An authority of our own, and a certificate and key for the loopback interface: three PEM files."""
    now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)

    def signed(subject, issuer, public, key, extension):
        name, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (subject, issuer))
        begun = x509.CertificateBuilder(by, name, public, x509.random_serial_number())
        dated = begun.not_valid_before(now - hour).not_valid_after(now + 24 * hour)
        return dated.add_extension(extension, critical=False).sign(key, hashes.SHA256())

    root, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    authority = signed("authority", "authority", root.public_key(), root, x509.BasicConstraints(True, None))
    server = signed("superlink", "authority", own.public_key(), root, loopback)
    secret = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    written = {"ca.pem": authority, "server.pem": server}
    for name, found in written.items():
        (folder / name).write_bytes(found.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(secret)
    return folder / "ca.pem", folder / "server.pem", folder / "server.key"


def test_a_federation_that_is_stopped_leaves_no_process_behind(tmp_path):
    """SIGTERM in the middle of an audit ends every process that it started."""
    script = textwrap.dedent(
        f"""
        import sys
        from scapegoat.cli import main
        main(["flower", "audit", "--set", "federation.clients=3", "--set", "federation.fraction=1.0",
              "--defense", "fedavg", "--out", {str(tmp_path)!r}, "--timeout", "120"])
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 90
    while not list(tmp_path.glob("live/*/logs/run.log")) and time.monotonic() < deadline:
        assert child.poll() is None, child.stderr.read().decode()
        time.sleep(0.2)
    environment = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    mark = next(
        part.split("=")[1]
        for part in Path(f"/proc/{environment[0]}/environ").read_bytes().decode().split("\0")
        if part.startswith("SCAPEGOAT_FEDERATION=")
    )
    assert still_running(mark)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=100) == 130  # less than the audit gives itself, more than a busy machine takes
    deadline = time.monotonic() + 5
    while still_running(mark) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not still_running(mark)


def test_only_loopback_needs_no_declaration():
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("10.1.2.3")
    assert not is_loopback("a name that does not exist")
    assert Where("127.0.0.1:9092").insecure
    assert not Where("10.1.2.3:9092", owned=True).insecure
    assert Where("10.1.2.3:9092", owned=True, plaintext=True).insecure
    with pytest.raises(InputError, match="--i-own-this-federation"):
        Where("10.1.2.3:9092")
    with pytest.raises(InputError, match="host:port"):
        Where("10.1.2.3", owned=True)


def test_children_get_where_things_are_and_nobodys_tokens(monkeypatch):
    told = {"PATH": "/bin", "LC_ALL": "C", "CUDA_VISIBLE_DEVICES": "0", "SCAPEGOAT_DATA": "/data"}
    secret = {"GITHUB_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "HF_TOKEN": "x", "TORCH_AUTH": "x", "https_proxy": "x"}
    assert minimal(told | secret) == told
    monkeypatch.setenv("HF_TOKEN", "mine")
    assert passed(["HF_TOKEN"]) == {"HF_TOKEN": "mine"}
    with pytest.raises(InputError, match="--env NO_SUCH_NAME"):
        passed(["NO_SUCH_NAME"])


def test_the_key_goes_to_the_audits_own_servers_alone():
    assert sealed.ours("https://127.0.0.1:9092")
    assert sealed.ours("https://[::1]:9092")
    for other in ("http://127.0.0.1:9092", "https://10.0.0.1:9092", "https://example.org", "https://localhost.evil"):
        assert not sealed.ours(other)


def test_a_federation_that_does_not_start_says_what_its_process_said(tmp_path):
    with (
        pytest.raises(RunError, match=r"logs/superlink\.log"),
        LiveFederation(tmp_path, [], environment={"PYTHONHOME": "/nowhere"}, forkserver=False),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "cannot be read"),
        ("x = = 1", "is not TOML"),
        ("[project]\nname = 'x'", "components.serverapp is missing"),
    ],
)
def test_a_folder_that_is_no_app_is_refused(tmp_path, text, complaint):
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_app(tmp_path)


def test_run_configuration_is_read_as_toml_and_unknown_keys_are_refused(tmp_path):
    assert settings(["a=1", "b.c=true", "d=hello", 'e="x y"'], "--run-config") == {
        "a": 1,
        "b.c": True,
        "d": "hello",
        "e": "x y",
    }
    with pytest.raises(InputError, match="key=value"):
        settings(["oops"], "--run-config")
    files = {path.name: path.read_bytes() for path in EXAMPLE.glob("*.toml")}
    with pytest.raises(InputError, match="no such key"):
        wrap_app(EXAMPLE, files, tmp_path / "app", tmp_path / "rounds.jsonl", "arrays", {"no-such": 1})


def simulated_example(rounds: int, nodes: int, decay: float) -> tuple[np.ndarray, float]:
    """The example's own training and a rule, in one process; the decay as its formula says, nothing of a strategy.

    Returns the final margins of the targets and the test accuracy.
    """
    from hospital_federation.audit import material
    from hospital_federation.task import Net, accuracy, load_data, train

    rule, state = sg.aggregation.get("reputation_atm", trim=1), {}
    torch.manual_seed(0)
    net = Net()
    names = [name for name, _ in net.named_parameters()]
    for round_ in range(1, rounds + 1):
        old, replies = {name: value.clone() for name, value in net.state_dict().items()}, []
        for node in range(nodes):
            net.load_state_dict(old)
            x, y = load_data(node, nodes)
            train(net, x, y, epochs=1, lr=0.1, batch_size=32, seed=1000 * round_ + node)
            replies.append({name: value.clone() for name, value in net.state_dict().items()})
        updates = torch.stack([torch.cat([(old[n] - r[n]).flatten() for n in names]) for r in replies])
        context = sg.aggregation.AggregationContext(
            client_ids=tuple(range(nodes)), sample_counts=(1,) * nodes, round=round_ - 1, state=state
        )
        aggregate = rule(updates, context)
        vector = torch.cat([old[n].flatten() for n in names])
        moved = vector - aggregate.update - decay * vector
        new = dict(zip(names, moved.split([old[n].numel() for n in names]), strict=True))
        kept = [reply for reply, used in zip(replies, aggregate.kept, strict=True) if used]
        for name, value in old.items():
            new[name] = (
                new[name].view_as(value)
                if name in names
                else torch.as_tensor(np.median([reply[name].numpy() for reply in kept], axis=0))
            )
        net.load_state_dict(new)
    told = material(nodes)
    margins = Classification().margins(net.eval()(told.targets.x).detach(), told.targets.y)
    return margins.numpy(), accuracy(net, told.test.x, told.test.y)


def test_the_example_decays_live_as_the_formula_says(tmp_path, monkeypatch):
    """A rule with memory, three rounds, process by process, beside the same in one process."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    nodes, rounds, decay = 4, 3, 0.05
    run = audit_app(
        EXAMPLE,
        "hospital_federation.audit:material",
        "passive",
        tmp_path,
        nodes=nodes,
        run_config={"num-server-rounds": rounds, "strategy": "ReputationAngularTrimmedMean", "weight-decay": decay},
        timeout=600,
    )
    live = run.targets["score_final"].to_numpy()
    margins, tested = simulated_example(rounds, nodes, decay)
    np.testing.assert_allclose(live, margins, rtol=1e-3, atol=1e-4)
    assert run.summary["test_accuracy"] == pytest.approx(tested, abs=1e-3)
    undecayed, _ = simulated_example(rounds, nodes, 0.0)
    assert not np.allclose(live, undecayed, rtol=1e-1)
