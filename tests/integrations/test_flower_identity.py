"""What names a run of a user's app: whatever changes its figures changes its name, and nothing else does."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("flwr")

from scapegoat.attacks import Samples
from scapegoat.integrations.flower import AuditMaterial
from scapegoat.integrations.flower.live.audit import Where, app_spec
from scapegoat.integrations.flower.live.wrapper import code_hash, read_app, shipped_files
from scapegoat.integrations.shared.hostile import live_attack
from scapegoat.integrations.shared.outcome import spec_hash

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "flower"


def samples(count: int, seed: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    return Samples(torch.randn(count, 3, generator=generator), torch.randint(2, (count,), generator=generator))


MATERIAL = AuditMaterial(
    model=nn.Identity, targets=samples(8, 1), members=torch.arange(8) < 4, mask=samples(6, 2), test=samples(4, 3)
)


def spec(material: AuditMaterial = MATERIAL, attack: str = "fedpoisonmia", **changed):
    usual = {"nodes": 10, "hostile": 9, "run_config": {}, "code": "abc", "stand_ins": 8, "batch_size": 64, "seed": 0}
    return app_spec(read_app(EXAMPLE), material, live_attack(attack), where=Where(), **(usual | changed))


def test_whatever_changes_the_figures_of_an_app_changes_the_name_of_the_run():
    flipped = Samples(MATERIAL.targets.x, 1 - MATERIAL.targets.y)
    specs = [
        spec(),
        spec(attack="passive"),
        spec(hostile=0),
        spec(nodes=11),
        spec(batch_size=32),
        spec(stand_ins=4),
        spec(seed=1),
        spec(code="abd"),
        spec(run_config={"strategy": "FedAvg"}),
        *(
            spec(dataclasses.replace(MATERIAL, **change))
            for change in (
                {"targets": flipped},
                {"members": torch.arange(8) < 3},
                {"mask": samples(6, 4)},
                {"test": None},
                {"local": "gradient"},
            )
        ),
    ]
    assert len({spec_hash(one) for one in specs}) == len(specs)
    assert spec_hash(spec(dataclasses.replace(MATERIAL, mask=samples(6, 2)))) == spec_hash(spec())


def test_a_strategy_is_a_defense_by_the_name_of_its_rule():
    def defense(strategy):
        return spec(run_config={"strategy": strategy})["defense"]

    assert defense("FedAvg") == {"name": "fedavg", "strategy": "FedAvg"}
    assert defense("AngularTrimmedMean")["name"] == "atm"
    assert defense("OurOwn")["name"] == "OurOwn"


def test_the_code_of_an_app_has_a_name_that_its_configuration_and_earlier_audits_do_not_change(tmp_path):
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__"))
    out = app / "flower-audit"
    before = shipped_files(app, out)
    assert {"pyproject.toml", "hospital_federation/task.py"} <= set(before)
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace('"AngularTrimmedMean"', '"FedAvg"'))
    (out / "live" / "abc" / "app").mkdir(parents=True)
    (out / "live" / "abc" / "app" / "earlier.py").write_text("x = 1\n")
    after = shipped_files(app, out)
    assert not [name for name in after if "earlier" in name]
    assert code_hash(after) == code_hash(before)
    with (app / "hospital_federation" / "task.py").open("a") as file:
        file.write("\nRECORDS = 3000\n")
    assert code_hash(shipped_files(app, out)) != code_hash(before)
