import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import scapegoat as sg
from scapegoat.errors import InputError

TINY = ["federation.batch_size=16", "attack.targets=40", "attack.mask=30", "data.validation=20", "model.hidden=[16]"]
OWN = [o for o in TINY if not o.startswith("model")]


class Own(nn.Module):
    """A layer that scapegoat knows nothing about."""

    def __init__(self, features=10, classes=3):
        super().__init__()
        self.table = nn.Parameter(torch.randn(features, classes) / 10)

    def forward(self, x):
        return torch.tanh(x) @ self.table


def own_records(count=400, classes=3):
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, count)
    return (rng.normal(size=(count, 10)) + y[:, None]).astype(np.float32), y


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return sg.audit(
        data={"name": "hospital", "records": 600, "features": 50, "classes": 5},
        attacks=["passive", "fedpoisonmia"],
        defenses=["fedavg", {"name": "atm", "trim": 2}, [{"name": "norm_clipping"}, {"name": "atm"}]],
        rounds=4,
        overrides=TINY,
        out=tmp_path_factory.mktemp("audit"),
        title="Tiny",
    )


def test_an_audit_has_a_run_for_every_attack_and_defense_in_the_spelling_given(found):
    cells = {(r.summary["attack"], r.summary["defense"]) for r in found.results}
    assert len(cells) == 6
    assert ("fedpoisonmia", "norm_clipping + atm") in cells
    assert {r.spec.defense.trim for r in found.results if r.summary["defense"] == "atm"} == {2}


def test_an_audit_answers_in_words_in_a_table_and_as_a_page(found):
    assert found.verdict.text
    assert "fedpoisonmia" in found.table().lower().replace(" ", "")
    page = found.to_html()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "Tiny" in page
    assert "<iframe" in found._repr_html_()


def test_the_attacks_share_targets_and_mask(found):
    assert {(r.spec.attack.targets, r.spec.attack.mask) for r in found.results} == {(40, 30)}


def test_a_module_and_arrays_of_ones_own_are_audited_as_they_are():
    module = Own()
    before = module.table.detach().clone()
    found = sg.audit(
        model=module, data=own_records(), attacks=["passive"], defenses=["fedavg"], rounds=2, overrides=OWN
    )
    assert found.results[0].summary["model"] == "given"
    assert torch.equal(module.table.detach(), before)


def test_a_factory_of_ones_own_is_given_what_it_asks_for():
    asked = []

    def make(input_shape, classes):
        asked.append((input_shape, classes))
        return Own(input_shape[0], classes)

    sg.audit(model=make, data=own_records(), attacks=["passive"], defenses=["fedavg"], rounds=1, overrides=OWN)
    assert set(asked) == {((10,), 3)}


def test_several_hostile_clients_raise_the_trim_unless_it_is_given():
    from scapegoat.auditing import audit_specs

    specs = audit_specs(
        attacks=["passive"], defenses=["atm", {"name": "atm", "trim": 1}, "fedavg"], clients=20, malicious=3
    )
    assert [getattr(s.defense, "trim", None) for s in specs] == [3, 1, None]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"data": (np.zeros((50, 4)), np.zeros(49))}, "49 labels"),
        ({"data": (np.zeros((2000, 4)), np.arange(2000) % 3), "model": Own(4, 2)}, "logits"),
        ({"data": (np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3)}, "60 records"),
        ({"data": 7}, "pair"),
        ({"defenses": "fedavg"}, "defenses"),
        ({"attacks": []}, "attacks"),
        ({"seeds": 0}, "seeds"),
        ({"model": 3}, "model"),
        ({"clients": 1}, "malicious"),
        ({"malicious": 0}, "nobody would attack"),
        ({"overrides": ["attack.gamma=0.9"]}, "as in --attack"),
        ({"overrides": ["defense.name=atm"]}, "as in --defense"),
        ({"overrides": ["defense=[{name: norm_clipping}, {name: atm}]"]}, "as in --defense"),
    ],
)
def test_wrong_input_is_one_line_before_anything_runs(options, says):
    with pytest.raises(InputError) as error:
        sg.audit(**{"rounds": 1, **options})
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_labels_that_are_no_classes_are_refused():
    x, y = own_records()
    with pytest.raises(InputError):
        sg.audit(data=(x, y + 0.5), rounds=1)


def test_from_the_shell_one_command_gives_table_verdict_and_report(tmp_path):
    x, y = own_records()
    np.savez(tmp_path / "records.npz", x=x, y=y)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n\n\ndef make(input_shape, classes):\n"
        "    return nn.Sequential(nn.Linear(*input_shape, 8), nn.GELU(), nn.Linear(8, classes))\n\n\n"
        "def broken():\n    raise ValueError('no such weights')\n"
    )
    command = [sys.executable, "-m", "scapegoat", "audit", "--data", "npz:records.npz", "--rounds", "2"]
    command += ["--attack", "passive", "--attack", "agrevader"]
    command += ["--attack", "gradient_ascent", "--attack", "{name: gradient_ascent, scale: 2}", "--defense", "fedavg"]
    for override in OWN:
        command += ["--set", override]

    def go(*more):
        return subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=300)

    done = go("--model", "mine:make")
    assert done.returncode == 0, done.stderr
    assert "agrevader" in done.stdout
    for scale in ("1.0", "2.0"):
        assert f"gradient_ascent (scale={scale}) against fedavg" in done.stdout
    assert "Note: One seed" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    again = json.loads(go("--model", "mine:make", "--json").stdout)
    assert len(again["runs"]) == 4
    assert any("One seed" in caveat for caveat in again["caveats"])
    assert again["verdict"]
    broken = go("--model", "mine:broken")
    assert broken.returncode == 2
    assert "no such weights" in broken.stderr
    assert len(broken.stderr.strip().splitlines()) == 1


def test_an_audit_in_a_console_is_one_short_line_and_its_runs_are_rows(found):
    assert len(repr(found)) < 600
    assert repr(found).startswith(f"Audit({found.verdict.status}: ")
    assert repr(found).endswith("6 runs)")
    frame = found.to_frame()
    assert len(frame) == 6
    columns = getattr(frame, "column_names", None) or list(frame.columns)
    assert {"attack", "defense", "seed", "auc", "auc_low", "auc_high", "epsilon"} <= set(columns)


def test_four_rounds_of_training_are_not_judged_and_programs_can_read_that(found):
    plain = found.as_dict()
    assert plain["status"] in ("undertrained", "open")
    assert plain["status"] == found.verdict.status
    assert plain["recommended"] is None or plain["status"] == "open"
    assert len(plain["rules"]) == 3
    json.dumps(plain, allow_nan=False)
