"""The examples in the documentation are run, not just shown."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch

import scapegoat as sg
from scapegoat.aggregation import registry as rules
from scapegoat.attacks import registry as attacks
from scapegoat.experiments import parse

DOCS = Path(__file__).parent.parent / "docs"
SMALL = {
    "data": {"name": "hospital", "records": 700, "features": 60, "classes": 5, "validation": 40},
    "model": {"name": "mlp", "hidden": [16]},
    "federation": {"clients": 6, "rounds": 3, "batch_size": 16},
    "attack": {"name": "passive", "targets": 40, "mask": 30},
}


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def documented(tmp_path, monkeypatch):
    """The components of the researchers' guide, registered for one test."""
    code = [b for b in blocks("researchers.md", "python") if "@register" in b]
    assert len(code) == 2
    before = set(rules.names()), set(attacks.names())
    # As a file: what a component's code is belongs to a run's name.
    (tmp_path / "documented.py").write_text("\n\n".join(code))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("documented")
    yield vars(module)
    sys.modules.pop("documented")
    for registry, known in zip((rules, attacks), before, strict=True):
        for name in set(registry.names()) - known:
            registry._classes.pop(name)


def test_the_documented_rule_works_by_name_and_on_updates(documented):
    updates = torch.tensor([[0.1, 0.0], [2.0, 0.0], [0.0, 2.0], [30.0, 30.0], [float("nan"), 0.0]])
    aggregate = documented["TrimmedNorm"](trim=1)(updates)
    assert aggregate.kept.tolist() == [False, True, True, False, False]
    assert aggregate.update.tolist() == [1.0, 1.0]
    assert sg.run({**SMALL, "defense": {"name": "trimmed_norm", "trim": 1}}).summary["defense"] == "trimmed_norm"


def test_the_documented_attack_works_by_name(documented):
    attack = {"name": "loud", "volume": 2.0, "targets": 40, "mask": 30}
    assert sg.run({**SMALL, "attack": attack}).summary["attack"] == "loud"


def test_the_documented_spec_is_valid():
    import yaml

    (text,) = blocks("index.md", "yaml")
    assert parse(yaml.safe_load(text)).defense.name == "atm"
