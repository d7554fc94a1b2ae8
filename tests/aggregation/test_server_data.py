"""Rules that use the server's own data use that and nothing else, and say so when it is missing."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scapegoat.aggregation import AggregationContext, Rule, Score, deepsight, get
from scapegoat.errors import InputError
from tests.aggregation.inputs import context, make

CLASSES, FEATURES = 3, 8
D = CLASSES * FEATURES


class Server:
    """A linear model with validation data and, beside them, test data that a rule must never touch."""

    def __init__(self, poisoned_test: bool) -> None:
        draw = torch.Generator().manual_seed(0)
        truth = torch.randn(CLASSES, FEATURES, generator=draw)
        self.weights = torch.zeros(CLASSES, FEATURES)
        self.x = torch.randn(90, FEATURES, generator=draw)
        self.y = (self.x @ truth.T).argmax(1)
        if poisoned_test:
            self.y[60:] = (self.y[60:] + 1) % CLASSES

    def gradient(self, first: int, last: int) -> Tensor:
        weights = self.weights.clone().requires_grad_()
        loss = F.cross_entropy(self.x[first:last] @ weights.T, self.y[first:last])
        return torch.autograd.grad(loss, weights)[0].flatten()

    def score(self, update: Tensor) -> Score:
        logits = self.x[:30] @ (self.weights - update.view(CLASSES, FEATURES)).T
        return Score(
            float(F.cross_entropy(logits, self.y[:30])), float((logits.argmax(1) != self.y[:30]).float().mean())
        )

    def context(self, n: int) -> AggregationContext:
        return AggregationContext(tuple(range(n)), (1,) * n, score=self.score, root_update=lambda: self.gradient(0, 30))


@pytest.mark.parametrize("rule", [get("fang"), get("fang", method="err"), get("fang", method="lfr"), get("fltrust")])
def test_poisoned_test_labels_change_nothing(rule: Rule) -> None:
    clean, poisoned = Server(poisoned_test=False), Server(poisoned_test=True)
    assert not torch.equal(clean.y, poisoned.y)
    updates = torch.stack([clean.gradient(30 + 5 * i, 35 + 5 * i) for i in range(6)])
    one, two = rule(updates, clean.context(6)), rule(updates, poisoned.context(6))
    assert torch.equal(one.update, two.update)
    assert torch.equal(one.kept, two.kept)


@pytest.mark.parametrize("rule", [get("fang"), get("fltrust")])
def test_poisoned_validation_labels_do_change_the_answer(rule: Rule) -> None:
    """The test above could not fail if the rules looked at nothing at all."""
    server = Server(poisoned_test=False)
    updates = torch.stack([server.gradient(30 + 5 * i, 35 + 5 * i) for i in range(6)])
    before = rule(updates, server.context(6)).update
    server.y[:30] = (server.y[:30] + 1) % CLASSES
    assert not torch.equal(before, rule(updates, server.context(6)).update)


@pytest.mark.parametrize("name", ["fang", "fltrust"])
def test_an_ascending_client_is_dropped(name: str) -> None:
    server = Server(poisoned_test=False)
    updates = torch.stack([server.gradient(30 + 5 * i, 35 + 5 * i) for i in range(6)])
    updates[2] *= -5
    assert not get(name)(updates, server.context(6)).kept[2]


@pytest.mark.parametrize(
    ("name", "missing", "says"),
    [("fang", "score", "validation data"), ("fltrust", "root_update", "root data"), ("deepsight", "layout", "layer")],
)
def test_missing_server_data_is_one_line(name: str, missing: str, says: str) -> None:
    without = dataclasses.replace(context(5, 150), **{missing: None})
    with pytest.raises(InputError, match=says) as caught:
        get(name)(make(0, 5, 150), without)
    assert f"context.{missing} is missing" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fang_survives_scores_that_are_not_numbers() -> None:
    def score(update: Tensor) -> Score:
        loss = float(update.sum())
        return Score(float("nan") if loss > 0 else loss, 0.5)

    updates = make(0, 5, 150)
    answer = get("fang")(updates, dataclasses.replace(context(5, 150), score=score))
    assert bool(answer.update.isfinite().all())
    assert int(answer.kept.sum()) >= 3


def test_fltrust_with_a_server_update_that_is_not_finite_changes_nothing() -> None:
    broken = dataclasses.replace(context(5, 150), root_update=lambda: torch.full((150,), torch.nan))
    answer = get("fltrust")(make(0, 5, 150), broken)
    assert not answer.update.any()
    assert not answer.kept.any()
    assert answer.notes == {"root_malformed": 1.0}


def backdoored(n: int = 12, hostile: int = 4) -> Tensor:
    """Honest clients move all classes; hostile ones move one output neuron, alike, and hard."""
    updates = 0.1 * make(0, n, 150, kind="normal")
    draw = torch.Generator().manual_seed(5)
    trigger = torch.randn(6, generator=draw)
    updates[:hostile, -35:-5] *= 0.01
    updates[:hostile, -5:] *= 0.01
    updates[:hostile, -35:-29] += 3 * trigger
    updates[:hostile, -5] += 3
    return updates


def test_deepsight_drops_the_cluster_of_single_class_clients() -> None:
    answer = get("deepsight")(backdoored(), context(12, 150, size=0.1))
    assert answer.kept.tolist() == [False] * 4 + [True] * 8
    assert answer.notes["suspects"] == 4
    assert answer.notes["division_differences"] == 1


def test_deepsight_votes_without_a_probe_and_says_so() -> None:
    layout = context(12, 150).layout
    assert layout is not None
    answer = deepsight(backdoored(), layout)
    assert answer.notes["division_differences"] == 0
    assert not answer.kept[:4].any()


def test_deepsight_takes_probabilities_of_a_sample_or_of_a_batch() -> None:
    rich = context(12, 150, size=0.1)
    probe = rich.output_probe
    assert probe is not None
    means = dataclasses.replace(rich, output_probe=lambda update, seed: probe(update, seed).mean(0))
    assert torch.equal(get("deepsight")(backdoored(), means).kept, get("deepsight")(backdoored(), rich).kept)


@pytest.mark.parametrize("layout", [(("bias", (150,)),), (("w", (3, 40)), ("b", (3,)))])
def test_deepsight_without_an_output_layer_is_one_line(layout: tuple) -> None:  # type: ignore[type-arg]
    with pytest.raises(InputError, match="deepsight needs the output layer"):
        deepsight(make(0, 5, 150), layout)
