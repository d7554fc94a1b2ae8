"""Losses, margins and metrics are those of the plain definitions, on any outputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scapegoat import tasks
from tests.reference import tasks as reference

VALUES = st.floats(-50, 50, width=32)
OUTPUTS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(VALUES, min_size=width, max_size=width), min_size=1, max_size=6)
)
SEEDS = st.integers(0, 99)
usual = settings(deadline=None, max_examples=100)


def fitted(name: str, y: Tensor, width: int, **options: object) -> tasks.TaskSpec:
    return tasks.get(name, **options).fitted(y, width)


def close(found: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(found.double(), torch.tensor(expected).double(), rtol=1e-4, atol=1e-4)


@usual
@given(rows=OUTPUTS.filter(lambda rows: len(rows[0]) > 1), seed=SEEDS)
def test_classes(rows: list[list[float]], seed: int) -> None:
    outputs = torch.tensor(rows)
    y = torch.from_numpy(np.random.default_rng(seed).integers(0, outputs.shape[1], len(rows)))
    task = fitted("classification", y, outputs.shape[1])
    close(task.losses(outputs, y), [reference.cross_entropy(r, t) for r, t in zip(rows, y.tolist(), strict=True)])
    close(task.margins(outputs, y), [reference.class_margin(r, t) for r, t in zip(rows, y.tolist(), strict=True)])


@usual
@given(logits=st.lists(VALUES, min_size=1, max_size=6), seed=SEEDS, flat=st.booleans())
def test_one_logit(logits: list[float], seed: int, flat: bool) -> None:
    outputs = torch.tensor(logits) if flat else torch.tensor(logits)[:, None]
    y = torch.from_numpy(np.random.default_rng(seed).integers(0, 2, len(logits)))
    task = fitted("binary", y, 2)
    pairs = list(zip(logits, y.tolist(), strict=True))
    close(task.losses(outputs, y), [reference.binary_cross_entropy(z, t) for z, t in pairs])
    close(task.margins(outputs, y), [reference.binary_margin(z, t) for z, t in pairs])
    assert task.score(outputs, y) == pytest.approx(sum((z > 0) == (t > 0) for z, t in pairs) / len(pairs))


@usual
@given(rows=OUTPUTS.filter(lambda rows: len(rows[0]) > 1), seed=SEEDS)
def test_several_labels(rows: list[list[float]], seed: int) -> None:
    outputs = torch.tensor(rows)
    y = torch.from_numpy(np.random.default_rng(seed).integers(0, 2, outputs.shape)).float()
    task = fitted("multilabel", y, outputs.shape[1])
    pairs = list(zip(rows, [[int(v) for v in row] for row in y.tolist()], strict=True))
    close(task.losses(outputs, y), [reference.label_cross_entropy(r, t) for r, t in pairs])
    close(task.margins(outputs, y), [reference.label_margin(r, t) for r, t in pairs])


@usual
@given(outputs=st.lists(VALUES, min_size=2, max_size=8), seed=SEEDS, spread=st.sampled_from([0.5, 1.0, 3.0]))
def test_numbers(outputs: list[float], seed: int, spread: float) -> None:
    y = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(outputs), 1))).float()
    task = fitted("regression", y, 1, spread=spread)
    given_outputs, targets = torch.tensor(outputs), y[:, 0].tolist()
    pairs = list(zip(outputs, targets, strict=True))
    close(task.losses(given_outputs, y), [reference.squared_error([o], [t]) for o, t in pairs])
    found = task.margins(given_outputs, y)
    torch.testing.assert_close(
        found, torch.tensor([reference.value_margin(o, t, spread) for o, t in pairs]), rtol=1e-3, atol=1e-3
    )
    assert task.score(given_outputs, y) == pytest.approx(reference.explained_variance(outputs, targets), abs=1e-4)


@pytest.mark.parametrize("name", ["classification", "binary", "multilabel", "regression"])
def test_a_model_that_has_diverged_tells_nothing(name: str) -> None:
    width = {"binary": 1, "regression": 1}.get(name, 3)
    y = {"classification": torch.tensor([0, 2]), "binary": torch.tensor([0, 1])}.get(name, torch.eye(2, width))
    outputs = torch.full((2, width), math.nan)
    task = tasks.get(name).fitted(y, {"binary": 2}.get(name, width))
    assert task.margins(outputs, y).tolist() == [-math.inf, -math.inf]
    assert 0 <= task.score(outputs, y) <= 1


def every_task(records: int = 40) -> list[tuple[tasks.TaskSpec, Tensor, int]]:
    rng = np.random.default_rng(0)
    classes, pairs = torch.from_numpy(rng.integers(0, 4, records)), torch.from_numpy(rng.integers(0, 2, records))
    sets, numbers = torch.from_numpy(rng.integers(0, 2, (records, 3))), torch.from_numpy(rng.normal(size=(records, 2)))
    made = [("classification", classes, 4), ("binary", pairs, 2), ("multilabel", sets, 3), ("regression", numbers, 2)]
    return [
        (task, task.prepared(y, width).y, width)
        for name, y, width in made
        if (task := tasks.get(name).fitted(y, width))
    ]


@pytest.mark.parametrize(("task", "y", "width"), every_task(), ids=lambda value: getattr(value, "name", ""))
def test_the_loss_calls_a_wrong_target_wrong(task: tasks.TaskSpec, y: Tensor, width: int) -> None:
    """An output that is right about the truth has a greater loss at every wrong target drawn, and at every rival."""
    wrong = task.wrong(y, width, np.random.default_rng(1))
    assert wrong.shape == y.shape
    assert wrong.dtype == y.dtype
    right = {
        "classification": lambda: 5 * torch.nn.functional.one_hot(y, width).float(),
        "binary": lambda: (10.0 * y - 5)[:, None],
        "multilabel": lambda: 10 * y - 5,
        "regression": lambda: y.clone(),
    }[task.name]()
    truth = task.losses(right, y)
    assert bool((task.losses(right, wrong) > truth).all())
    assert all(bool((task.losses(right, rival) > truth).all()) for rival in task.rivals(y, width))
    assert bool((task.margins(right, y) > 0).all())


@pytest.mark.parametrize(("task", "y", "width"), every_task(), ids=lambda value: getattr(value, "name", ""))
def test_the_gradient_at_the_outputs_is_autograds(task: tasks.TaskSpec, y: Tensor, width: int) -> None:
    outputs = torch.randn(len(y), task.outputs(width), generator=torch.Generator().manual_seed(2))
    losses, gradient = task.at_outputs(outputs.clone(), y)
    leaf = outputs.clone().requires_grad_()
    expected = task.losses(leaf, y)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), leaf)[0])


@pytest.mark.parametrize(("task", "y", "width"), every_task(), ids=lambda value: getattr(value, "name", ""))
def test_every_record_is_in_a_group(task: tasks.TaskSpec, y: Tensor, width: int) -> None:
    strata, groups = task.prepared(y, width)[1:3]
    assert strata.shape == (len(y),)
    assert strata.dtype == torch.int64
    assert int(strata.min()) >= 0
    assert int(strata.max()) < groups


def test_balanced_weights_make_classes_count_alike() -> None:
    y = torch.tensor([0] * 30 + [1] * 10)
    task = tasks.get("classification", class_weights="balanced").fitted(y, 2)
    losses = task.losses(torch.zeros(40, 2), y)
    assert float(losses[:30].sum()) == pytest.approx(float(losses[30:].sum()), rel=1e-5)
    assert float(losses.mean()) == pytest.approx(math.log(2), rel=1e-5)
    one_logit = tasks.get("binary", class_weights="balanced").fitted(y, 2)
    torch.testing.assert_close(one_logit.losses(torch.zeros(40), y), losses)


def test_weights_of_labels_count_where_the_label_holds() -> None:
    y = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    plain, weighted = (tasks.get("multilabel", class_weights=w).fitted(y, 2) for w in (None, (3.0, 1.0)))
    zeros = torch.zeros(2, 2)
    assert (weighted.losses(zeros, y) / plain.losses(zeros, y)).tolist() == pytest.approx([2.0, 1.0])


@pytest.mark.parametrize(("name", "width"), [("classification", 3), ("binary", 2)])
def test_weights_must_be_as_many_as_classes(name: str, width: int) -> None:
    with pytest.raises(ValueError, match=rf"class_weights: 5 weights for {width} classes"):
        tasks.get(name, class_weights=(1.0,) * 5).fitted(torch.zeros(4, dtype=torch.int64), width)


def test_standardised_targets_have_mean_0_and_variance_1_and_constants_stay_finite() -> None:
    y = torch.stack([torch.arange(50.0) * 7 + 1e6, torch.full((50,), 3.0)], 1).double()
    made = tasks.get("regression").fitted(y, 2).prepared(y, 2).y
    assert made.mean(0).tolist() == pytest.approx([0, 0], abs=1e-5)
    assert made.std(0, correction=0).tolist() == pytest.approx([1, 0], abs=1e-5)
    as_they_are = tasks.get("regression", standardize=False).fitted(y, 2)
    torch.testing.assert_close(as_they_are.prepared(y, 2).y, y.float())
    wrong = as_they_are.wrong(y.float(), 2, np.random.default_rng(0))
    assert (wrong - y).abs().mean(0).tolist() == pytest.approx([float(y[:, 0].std(correction=0)), 1.0], rel=1e-3)
