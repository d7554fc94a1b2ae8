"""`scapegoat flower audit` refuses, in one line and with exit code 2, what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from scapegoat.cli import main
from scapegoat.cli.flower import _specs

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
        (["--app", EXAMPLE, "--material", "no_such_module:material"], "cannot be imported"),
        (["--app", EXAMPLE, "--material", "no_colon"], "write package.module:name"),
        (["--app", EXAMPLE, "--material", "hospital_federation.task:Net"], "not an AuditMaterial"),
        ([*APP, "--hostile", "10"], "between 0 and 9"),
        ([*APP, "--attack", "nonsense"], "'nonsense' is not a"),
        (["--attack", "{name: fedpoisonmia, knowledge: full}"], "partial is the only knowledge"),
        (["--defense", "atm", "--set", "federation.clients=2"], "trim"),
        (["--set", "federation.schedule.name=async"], "sync is wanted"),
        (["/nowhere/spec.yaml"], "cannot be read"),
        (["--report", "/nowhere/report.html"], "--report"),
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
