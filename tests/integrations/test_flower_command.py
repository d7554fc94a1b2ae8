"""`scapegoat flower audit` refuses, in one line and with exit code 2, what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from scapegoat.cli import main
from scapegoat.cli.flower import _specs
from scapegoat.integrations.shared.hostile import check_company, live_attack

EXAMPLE = str(Path(__file__).parent.parent.parent / "examples" / "flower")
APP = ["--app", EXAMPLE, "--material", "hospital_federation.audit:material"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([*APP, "--superlink", "10.0.0.1:9092"], "--i-own-this-federation"),
        ([*APP, "--superlink", "somewhere"], "write host:port"),
        (["--superlink", "127.0.0.1:9092"], "--superlink: needs --app"),
        (["--app", EXAMPLE], "--material"),
        ([*APP, "--defense", "atm"], "--defense: belongs to a spec"),
        ([*APP, "--side-by-side"], "--side-by-side: belongs to a spec"),
        (["--app", "/nowhere", "--material", "a:b"], "cannot be read"),
        (["--app", EXAMPLE, "--material", "no_such_module:material"], "cannot import no_such_module"),
        (["--app", EXAMPLE, "--material", "no_colon"], "write package.module:name"),
        (["--app", EXAMPLE, "--material", "hospital_federation.task:Net"], "not an AuditMaterial"),
        ([*APP, "--hostile", "10"], "between 0 and 9"),
        ([*APP, "--attack", "nonsense"], "'nonsense' is not a"),
        (["--attack", "{name: fedpoisonmia, knowledge: full}"], "partial is the only knowledge"),
        (["--defense", "atm", "--set", "federation.clients=2"], "trim"),
        (["--set", "federation.schedule.name=async"], "sync is expected"),
        (["/nowhere/spec.yaml"], "cannot be read"),
        (["--report", "/nowhere/report.html"], "--report"),
        (
            ["--nodes", "3"],
            "--nodes: needs --app, the folder of a Flower app; in a spec it is --set federation.clients",
        ),
        (["--nodes", "10"], "--nodes: needs --app"),
        (["--hostile", "1"], "--hostile: needs --app"),
        (["--seed", "7"], "--seed: needs --app, the folder of a Flower app; in a spec it is --set seed="),
        (["--stand-ins", "2"], "--stand-ins: needs --app"),
        (["--i-own-this-federation"], "--i-own-this-federation: needs --app"),
        (["--insecure"], "--insecure: needs --app"),
        (["--root-certificates", "ca.pem"], "--root-certificates: needs --app"),
        (["--run-config", "a=1"], "--run-config: needs --app"),
        ([*APP, "--insecure"], "--insecure: needs --superlink"),
        ([*APP, "--i-own-this-federation"], "--i-own-this-federation: needs --superlink"),
        ([*APP, "--root-certificates", "ca.pem"], "--root-certificates: needs --superlink"),
        ([*APP, "--superlink", "127.0.0.1:9", "--insecure", "--root-certificates", "ca.pem"], "give one of them"),
        ([*APP, "--round-timeout", "9"], "--round-timeout: belongs to a spec"),
        ([*APP, "--root", "data"], "--root: belongs to a spec"),
        ([*APP, "--set", "seed=1"], "--set: belongs to a spec"),
        (["spec.yaml", *APP], "SPEC: belongs to a spec"),
        (["--attack", "gradient_ascent", "--attack", "fedpoisonmia"], "--set federation.malicious=2 or more"),
        (["--attack", "agrevader"], "agrevader: hides among the updates"),
        ([*APP, "--attack", "fedpoisonmia", "--stand-ins", "0"], "--stand-ins 1 or more"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_two(arguments, complaint, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["flower", "audit", "--out", str(tmp_path), *arguments])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
    assert not list(tmp_path.glob("live/*/logs"))


def test_an_attack_with_company_is_not_refused():
    for attack, known in (("fedpoisonmia", 2), ("passive", 1), ("gradient_ascent", 1)):
        check_company(live_attack(attack), known, "")


def test_every_attack_meets_every_defense_with_partial_knowledge(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("seed: 3\nattack: {name: passive, targets: 50}\n")
    plain = list(_specs(path, ["federation.rounds=7"], ["agrevader", "{name: passive, mask: 9}"], ["fedavg", "atm"]))
    assert [(p["attack"]["name"], p["defense"]) for p in plain] == [
        ("agrevader", "fedavg"),
        ("agrevader", "atm"),
        ("passive", "fedavg"),
        ("passive", "atm"),
    ]
    assert all(p["attack"]["knowledge"] == "partial" and p["federation"]["rounds"] == 7 for p in plain)
    assert plain[0]["attack"]["targets"] == 50
    assert [p["defense"] for p in _specs(None, [], [], [])] == ["fedavg", "atm"]
