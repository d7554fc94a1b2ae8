"""Whichever route the passes take, gradients and scores are the same up to rounding."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from scapegoat.gradients import GradientOracle, client_gradients
from scapegoat.kernels.routes import FIXED, Routes
from scapegoat.modelling.flat_model import FlatModel

FEATURES, CLASSES, SIZES = 40, 3, [5, 1, 6]
PRODUCTS = ("dense", "looked_up")

MODELS = {
    "perceptron": lambda: nn.Sequential(nn.Linear(FEATURES, 70), nn.ReLU(), nn.Linear(70, CLASSES)),
    "shared": lambda: nn.Sequential(nn.Linear(FEATURES, 70), nn.Tanh(), nn.Linear(70, CLASSES)),
}
ROUTES = [
    Routes(passes="autograd"),
    Routes(passes="hand", room=1_000_000),
    *(Routes(passes="hand", records=r, weights=w) for r, w in itertools.product(PRODUCTS, PRODUCTS)),
]


def records(density: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = (torch.rand(sum(SIZES), FEATURES, generator=generator) < density).float()
    return x, torch.randint(CLASSES, (len(x),), generator=generator)


def flat(kind: str, routes: Routes = FIXED) -> FlatModel:
    torch.manual_seed(0)
    model = FlatModel(MODELS[kind](), (FEATURES,), CLASSES)
    model.routes = routes
    return model


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("routes", ROUTES, ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_every_client_gets_its_gradient_by_every_route(kind: str, routes: Routes, density: float) -> None:
    x, y = records(density)
    model = flat(kind, routes)
    vector = model.initial()
    want = torch.stack([model.gradient(vector, a, b)[0] for a, b in zip(x.split(SIZES), y.split(SIZES), strict=True)])
    out = torch.full((len(SIZES), model.d), torch.nan)
    client_gradients(model, vector, x, y, SIZES, out)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("kind", MODELS)
def test_scores_and_inner_products_are_the_same_by_every_route(kind: str, product: str) -> None:
    x, y = records(0.1)
    vectors = torch.randn(3, flat(kind).d, generator=torch.Generator().manual_seed(2))
    answers = []
    for routes in (FIXED, Routes(scoring=product, crafting=product)):  # type: ignore[arg-type]
        model = flat(kind, routes)
        oracle = GradientOracle(model, model.initial())
        samples = oracle.per_sample(x, y)
        told = (samples.gram(), samples.dot(vectors), samples.combine(torch.ones(len(x))), oracle.mean(x, y))
        answers.append((model.logits(model.initial(), x), *told))
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1, 5, 100])
def test_images_score_alike_however_many_pass_at_once(size: int) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, CLASSES))
    model = FlatModel(module, (1, 6, 6), CLASSES)
    x, y = torch.rand(12, 1, 6, 6), torch.arange(12) % CLASSES
    vector = model.initial()
    want, out = model.logits(vector, x), torch.empty(2, 2, model.d)
    client_gradients(model, vector, x, y, [7, 5], out[0])
    model.routes = Routes(images=size, scored_images=size)
    client_gradients(model, vector, x, y, [7, 5], out[1])
    torch.testing.assert_close(model.logits(vector, x), want, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(out[1], out[0], rtol=1e-4, atol=1e-6)
