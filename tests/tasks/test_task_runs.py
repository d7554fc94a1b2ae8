"""Federations whose task is another than the paper's leak what was trained on, nothing else, and can be resumed."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scapegoat as sg
from scapegoat.errors import InputError
from scapegoat.experiments import parse
from scapegoat.experiments.staging import Pins, staged
from scapegoat.federation.simulation import Simulation
from scapegoat.membership.metrics import auc_value

TASKS = ("binary", "multilabel", "regression")
RECORDS, FEATURES = 1400, 40
NOISE = {"binary": 0.5, "multilabel": 0.5, "regression": 0.3}
"""Labels that are not all in the records: what a model knows beyond, it has memorised."""


def made(task: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(RECORDS, FEATURES)).astype(np.float32)
    signal = x @ rng.normal(size=(FEATURES, 3)) / FEATURES**0.5 + NOISE[task] * rng.normal(size=(RECORDS, 3))
    labels = {"binary": signal[:, 0] > 0, "multilabel": (signal > 0.3).astype(int), "regression": 9 * signal[:, 0] + 50}
    return x, labels[task]


def spec(folder: Path, data: str, attack: str = "passive", rounds: int = 60, **more: Any) -> dict[str, Any]:
    path = folder / f"{data}.npz"
    if not path.exists():
        x, y = made(data)
        np.savez(path, x=x, y=y)
    return {
        "data": {"name": f"npz:{path}", "validation": 20, "train": 500},
        "task": data,
        "model": {"name": "mlp", "hidden": [64]},
        "federation": {"rounds": rounds, "clients": 10, "server": {"lr": 0.02}},
        "attack": {"name": attack, "targets": 120, "mask": 60},
        "evaluation": {"design": "coin"},
        **more,
    }


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_what_was_memorised_leaks_and_poison_adds_to_it(tmp_path: Path, task: str) -> None:
    watched, poisoned = (sg.run(spec(tmp_path, task, attack)).summary for attack in ("passive", "fedpoisonmia"))
    assert watched["task"] == task
    assert watched["membership"]["auc"] > 0.6
    assert poisoned["membership"]["auc"] > watched["membership"]["auc"]
    low, high = watched["test_accuracy_ci"]
    assert low <= watched["test_accuracy"] <= high


def test_poison_adds_to_what_a_regression_leaks(tmp_path: Path) -> None:
    """In one run of a small regression it need not: here it does with each of three seeds."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "tasks.py"))["spec"]

    def auc(attack: str, seed: int) -> float:
        asked = example(tmp_path, "regression", attack, seed)
        asked["data"]["test"], asked["federation"]["rounds"] = 300, 100
        found = sg.run(asked).summary
        assert found["metric"] == "R²"
        return float(found["membership"]["auc"])

    watched, poisoned = ([auc(attack, seed) for seed in range(3)] for attack in ("passive", "fedpoisonmia"))
    assert min(watched) > 0.6
    assert np.mean(poisoned) > np.mean(watched)


@pytest.mark.parametrize("task", TASKS)
def test_a_model_that_has_seen_none_of_the_targets_tells_nothing(tmp_path: Path, task: str) -> None:
    cast = staged(parse(spec(tmp_path, task)))
    apart = tuple(shard[~torch.isin(shard, cast.splits.targets)] for shard in cast.splits.shards)
    unseen = dataclasses.replace(cast, benign=dataclasses.replace(cast.benign, shards=apart))
    simulation = Simulation(unseen, 100)
    while not simulation.done:
        simulation.run_round()
    # 120 targets: the AUC of chance has a standard deviation of 0.053.
    assert abs(auc_value(simulation.margins[-1], cast.member) - 0.5) < 0.16


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("defense", ["fang", "fltrust", "deepsight", "atm"])
def test_rules_that_ask_the_server_work_with_every_task(tmp_path: Path, task: str, defense: str) -> None:
    found = sg.run(spec(tmp_path, task, "adaptive", rounds=2, defense=defense)).summary
    assert 0 <= found["membership"]["auc"] <= 1


@pytest.mark.parametrize("task", TASKS)
def test_a_resumed_run_ends_with_the_same_numbers(tmp_path: Path, task: str) -> None:
    asked = spec(tmp_path, task, "fedpoisonmia", rounds=6)
    whole = sg.run(asked)
    seen = 0

    def stop(record: Any, rounds: int) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sg.run(asked, store=tmp_path / "store", progress=stop)
    resumed = sg.run(asked, store=tmp_path / "store")
    assert seen == 3
    assert resumed.targets.equals(whole.targets)
    assert resumed.summary["membership"] == whole.summary["membership"]


@pytest.mark.parametrize("protection", ["mixup", "dp_sgd", "loss_floor"])
@pytest.mark.parametrize("task", TASKS)
def test_protections_train_every_task(tmp_path: Path, task: str, protection: str) -> None:
    asked = spec(tmp_path, task, rounds=2)
    asked["federation"]["protect"] = [{"name": protection}]
    assert np.isfinite(sg.run(asked).rounds["loss"].to_numpy()).all()


def test_smoothing_needs_classes(tmp_path: Path) -> None:
    for task, allowed in (("binary", True), ("multilabel", False), ("regression", False)):
        asked = spec(tmp_path, task, rounds=1)
        asked["federation"]["protect"] = [{"name": "label_smoothing"}]
        if allowed:
            sg.run(asked)
        else:
            with pytest.raises(InputError, match="label_smoothing spreads classes"):
                sg.run(asked)


# The task is found


class OneLogit(nn.Module):
    def __init__(self, squashed: bool = False) -> None:
        super().__init__()
        self.body, self.squashed = nn.Linear(FEATURES, 1), squashed

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x)[:, 0]
        return torch.sigmoid(out) if self.squashed else out


@pytest.mark.parametrize(("task", "model"), [("binary", OneLogit), ("multilabel", None), ("regression", None)])
def test_a_task_is_found_and_named_in_the_spec(tmp_path: Path, task: str, model: Any) -> None:
    asked = {key: value for key, value in spec(tmp_path, task, rounds=1).items() if key != "task"}
    if model is not None:
        asked["model"] = sg.models.given(model)
    found = sg.run(asked)
    assert found.summary["task"] == task
    assert found.spec.task is not None
    assert found.spec.task.name == task
    stated = Pins().pinned(parse({**asked, "task": task}))
    assert stated.hash == found.spec.hash


def test_two_classes_and_two_logits_stay_classification(tmp_path: Path) -> None:
    asked = spec(tmp_path, "binary", rounds=1)
    del asked["task"]
    found = sg.run(asked)
    assert found.summary["task"] == "classification"
    assert found.spec.task is None


@pytest.mark.parametrize("labels", [(-1, 1), ("no", "yes"), (False, True)])
def test_labels_of_two_values_are_told_by_one_logit(labels: tuple[Any, Any]) -> None:
    x, y = made("binary")
    found = audited((x, np.array(labels)[y.astype(int)]), OneLogit)
    assert found.results[0].summary["task"] == "binary"


def audited(data: Any, model: Any = None, **options: Any) -> Any:
    small = ["attack.targets=100", "attack.mask=40", "data.validation=20", "federation.clients=4"]
    return sg.audit(
        model=model, data=data, attacks=["passive"], defenses=["fedavg"], rounds=2, jobs=1, overrides=small, **options
    )


# What does not fit is one line


def refused(data: Any, model: Any = None, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        audited(data, model, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_sigmoid_at_the_end_is_refused_with_the_fix() -> None:
    x, y = made("binary")
    assert "applies the sigmoid itself: return the logit" in refused((x, y), lambda: OneLogit(squashed=True))


def test_a_softmax_at_the_end_is_refused_with_the_fix() -> None:
    x, y = made("binary")
    model = nn.Sequential(nn.Linear(FEATURES, 2), nn.Softmax(1))
    assert "return the logits, without the last Softmax" in refused((x, y), model)


def test_outputs_that_cannot_reach_standardised_targets_are_refused() -> None:
    x, y = made("regression")
    model = nn.Sequential(nn.Linear(FEATURES, 1), nn.Sigmoid())
    assert "task.standardize=false" in refused((x, y), model)
    audited((x, y / 100), model, task={"name": "regression", "standardize": False})


def test_whole_numbers_beyond_thirty_are_no_classes_unless_somebody_says_so() -> None:
    x, _ = made("regression")
    ages = np.arange(len(x)) % 100
    said = refused((x, ages))
    assert "task=regression" in said
    assert "data.bins=4" in said
    assert audited((x, ages), task="regression").results[0].summary["task"] == "regression"
    assert "are numbers" in refused((x, ages.astype(str)))
    told = audited((x, ages.astype(str)), task="classification").results[0]
    assert told.summary["task"] == "classification"


def test_one_output_for_five_classes_says_what_it_could_be() -> None:
    x, _ = made("regression")
    said = refused((x, np.arange(len(x)) % 5), OneLogit)
    assert "task=regression takes the labels as numbers" in said


@pytest.mark.parametrize(
    ("data", "task", "says"),
    [
        ("hospital", "regression", "hospital has one class per record, and the task asks for numbers"),
        ("hospital", "binary", "two are expected (task=classification takes more)"),
        ("hospital", "multilabel", "several labels per record"),
        ("hospital", "clustering", "'clustering' is not a task"),
    ],
)
def test_labels_of_another_task_are_refused(data: str, task: str, says: str) -> None:
    assert says in refused(data, task=task)


def test_text_is_no_number() -> None:
    x, y = made("binary")
    assert "labels are text; numbers are expected" in refused((x, np.where(y, "a", "b")), task="regression")


# A loss of the user's own

LOSSES = """
import torch
import torch.nn.functional as F

def huber(outputs, targets):
    return F.huber_loss(outputs, targets, reduction="none").mean(1)

def focal(outputs, targets):
    right = F.cross_entropy(outputs, targets, reduction="none")
    return (1 - torch.exp(-right)).square() * right

def hinge(outputs, targets):
    return F.relu(1 - (2 * targets - 1) * outputs[:, 0])

def mean(outputs, targets):
    return F.mse_loss(outputs, targets)

def ranked(outputs, targets):
    return (outputs - outputs.mean(0) - targets).square().mean(1)

def deaf(outputs, targets):
    return torch.ones(len(outputs))
"""


@pytest.fixture
def own_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"losses_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(LOSSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize(("task", "loss"), [("regression", "huber"), ("binary", "hinge"), ("classification", "focal")])
def test_a_loss_of_the_users_own_trains_attacks_and_scores(
    tmp_path: Path, own_losses: str, task: str, loss: str
) -> None:
    data = "binary" if task == "classification" else task
    asked = spec(tmp_path, data, task={"name": task, "loss": f"{own_losses}:{loss}"})
    watched = sg.run(asked)
    assert watched.summary["membership"]["auc"] > 0.6
    poisoned = sg.run({**asked, "attack": {**asked["attack"], "name": "fedpoisonmia"}})
    assert poisoned.summary["membership"]["auc"] > 0.6
    assert watched.spec.canonical()["task"]["code"]


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("mean", "one loss per record"),
        ("ranked", "another loss in a batch than alone"),
        ("deaf", "does not lead back to the outputs"),
        ("missing", "has no 'missing'"),
    ],
)
def test_a_loss_that_will_not_do_is_refused(tmp_path: Path, own_losses: str, loss: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        sg.run(spec(tmp_path, "regression", task={"name": "regression", "loss": f"{own_losses}:{loss}"}))


def test_another_code_of_the_loss_is_another_run(tmp_path: Path, own_losses: str) -> None:
    asked = spec(tmp_path, "regression", task={"name": "regression", "loss": f"{own_losses}:huber"})
    planned = Pins().pinned(parse(asked)).canonical()
    assert parse(planned).hash == Pins().pinned(parse(asked)).hash != parse(asked).hash
    planned["task"]["code"] = "0" * 64
    with pytest.raises(InputError, match="has changed since the run was planned"):
        staged(parse(planned))
