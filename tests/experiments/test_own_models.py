"""Runs of a user's own model: the model is part of what names the run."""

import sys

import numpy as np
import pytest
from torch import nn

from scapegoat import models
from scapegoat.cli import main
from scapegoat.experiments import RunStore, parse
from scapegoat.experiments.executors import execute, named
from scapegoat.experiments.run import run
from tests.experiments import tiny

NET = """
import sys
from torch import nn


def make(input_shape, classes):
    return nn.Sequential(nn.Linear(*input_shape, 4), nn.ReLU(), nn.Linear(4, classes))


def leave():
    sys.exit(7)


def detached(input_shape, classes):
    return Detached(*input_shape, classes)


class Detached(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    """A user's file in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path / "net.py"
    sys.modules.pop("net", None)


def write(net, text):
    net.write_text(text)
    sys.modules.pop("net", None)  # as in a process that starts now


def own(**more):
    return {**tiny.spec(**more), "model": "net:make"}


def test_an_edited_model_is_another_run_and_an_unedited_one_the_same(net, tmp_path):
    write(net, NET)
    first = run(own(), store=tmp_path / "out")
    write(net, NET)
    run(own(), store=tmp_path / "out", progress=lambda *_: pytest.fail("computed again"))
    assert list(named([own()])) == [first.summary["spec_hash"]]
    write(net, NET.replace("4", "400"))
    assert run(own(), store=tmp_path / "out").summary["spec_hash"] != first.summary["spec_hash"]
    assert len(RunStore(tmp_path / "out").finished()) == 2


def test_closures_are_different_runs(tmp_path):
    def wide(width):
        return lambda input_shape, classes: nn.Sequential(nn.Linear(*input_shape, width), nn.Linear(width, classes))

    names = [
        run({**tiny.spec(), "model": models.given(wide(width))}, store=tmp_path).summary["spec_hash"]
        for width in (4, 40, 4)
    ]
    assert names[0] == names[2] != names[1]


def test_the_seed_of_a_run_is_not_part_of_what_its_model_is(net):
    write(net, NET)
    assert len({spec.model.content for spec in named([own(), own(seed=1)]).values()}) == 1


def test_workers_compute_the_pinned_model_and_refuse_another(net, tmp_path):
    write(net, NET)
    planned = [parse(spec) for spec in named([own(), own(seed=1)]).values()]
    other = planned[0].model_copy(update={"model": planned[0].model.model_copy(update={"content": "0" * 64})})
    outcome = execute([*planned, other], tmp_path / "out", jobs=2)
    assert sorted(outcome.summaries) == sorted(spec.hash for spec in planned)
    assert "model net:make: has changed since the run was planned" in outcome.failures[other.hash].reason


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("leave", "scapegoat: model net:leave: building it raised sys.exit(7) (net.py, line 11)"),
        ("detached", "scapegoat: model net:detached: in training mode"),
    ],
)
def test_a_model_that_cannot_work_is_one_line_and_exit_code_2(net, tmp_path, capsys, factory, says):
    write(net, NET)
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).random((800, 6)), y=np.arange(800) % 3)
    options = ["--rounds", "1", "--set", "attack.targets=40", "--set", "attack.mask=20", "--set", "data.validation=20"]
    with pytest.raises(SystemExit) as stop:
        main(["audit", "--model", f"net:{factory}", "--data", "npz:a.npz", *options])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith(says)
    assert len(message.splitlines()) == 1


def test_runs_of_models_of_the_package_keep_their_names():
    images = {
        "model": {"name": "resnet20", "norm": "batch"},
        "data": {"name": "cifar10", "test": None},
        "defense": "atm",
    }
    assert {spec.hash for spec in (parse({}), parse(images))} == {
        "754e01205597d90e4a93de60dea08a82cae3759a9a932b74af9f1066e578a4da",
        "534db0f8c734ff1b1dbdb153d4eb53df80b44b343184426d051bb07e85d4bf05",
    }
    assert list(named([tiny.spec("fedpoisonmia", "atm")])) == [
        "5cf8c7aea6de31564cc8490c387f7da2d86d35bf6774fdd81ab9a9fb9bf99528"
    ]
