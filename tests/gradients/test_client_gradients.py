"""Sharing passes between clients changes nothing but the time it takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from scapegoat.gradients import client_gradients
from scapegoat.gradients.layer_map import LayerMap
from scapegoat.modelling.flat_model import FlatModel
from tests.gradients import modules


def make(module: nn.Module, x: Tensor) -> tuple[FlatModel, Tensor, Tensor]:
    model = FlatModel(module, tuple(x.shape[1:]), modules.CLASSES)
    return model, model.initial(), torch.arange(len(x)) % modules.CLASSES


def one_by_one(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, sizes: list[int]) -> tuple[Tensor, list[float]]:
    found = [model.gradient(vector, a, b) for a, b in zip(x.split(sizes), y.split(sizes), strict=True)]
    return torch.stack([g for g, _ in found]), [loss for _, loss in found]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    ordinary = LayerMap.read

    def counting(self: LayerMap, model: FlatModel, x: Tensor, *args: object, **kwargs: object) -> object:
        seen.append(len(x))
        return ordinary(self, model, x, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(LayerMap, "read", counting)
    return seen


@pytest.mark.parametrize("sizes", [[4, 4, 4], [1, 7, 4], [12]])
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), (6,)),
        (modules.OverPositions(6, 5), (4, 6)),
        (modules.CalledTwice(6), (6,)),
    ],
)
def test_shared_passes_give_every_client_its_own_gradient(
    module: nn.Module, shape: tuple[int, ...], sizes: list[int], passes: list[int]
) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, *shape)
    model, vector, y = make(module, x)
    want, want_losses = one_by_one(model, vector, x, y, sizes)
    out = torch.full((len(sizes), model.d), torch.nan)
    losses = client_gradients(model, vector, x, y, sizes, out)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-6)
    assert losses == pytest.approx(want_losses, rel=1e-5)
    assert 12 in passes


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)),
        nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)),
        modules.MixesInTraining(6),
        modules.Tied(6),
    ],
)
def test_clients_stay_apart_where_layers_mix_samples_or_draw_random_numbers(
    module: nn.Module, passes: list[int]
) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 6)
    model, vector, y = make(module, x)
    torch.manual_seed(1)
    want, _ = one_by_one(model, vector, x, y, [6, 6])
    out = torch.empty(2, model.d)
    torch.manual_seed(1)
    client_gradients(model, vector, x, y, [6, 6], out)
    assert torch.equal(out, want)
    assert 12 not in passes


def test_a_parameter_that_nothing_reads_gets_a_zero_gradient() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 6)
    model, vector, y = make(modules.NeverCalled(6), x)
    out = torch.full((2, model.d), torch.nan)
    client_gradients(model, vector, x, y, [3, 3], out)
    assert out.isfinite().all()


def test_repeats_are_bit_identical() -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 90) * (torch.rand(60, 90) < 0.1)
    model, vector, y = make(nn.Sequential(nn.Linear(90, 40), nn.ReLU(), nn.Linear(40, 3)), x)
    first, second = torch.empty(3, model.d), torch.empty(3, model.d)
    client_gradients(model, vector, x, y, [20] * 3, first)
    client_gradients(model, vector, x, y, [20] * 3, second)
    assert torch.equal(first, second)


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many images each client's pass took at once."""
    seen: list[int | None] = []
    ordinary = FlatModel.gradient

    def watching(self: FlatModel, *args: object) -> object:
        seen.append(args[4] if len(args) > 4 else None)  # type: ignore[arg-type]
        return ordinary(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(FlatModel, "gradient", watching)
    monkeypatch.setattr("scapegoat.gradients.clients.IMAGES_AT_ONCE", 4)
    return seen


def convolving(*norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), *norm, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))


def test_images_pass_a_few_at_a_time_and_give_the_gradient_of_all(images: list[int | None]) -> None:
    torch.manual_seed(0)
    x = torch.randn(13, 1, 6, 6)
    model, vector, y = make(convolving(nn.GroupNorm(2, 4)), x)
    want, want_losses = one_by_one(model, vector, x, y, [10, 3])
    out = torch.full((2, model.d), torch.nan)
    losses = client_gradients(model, vector, x, y, [10, 3], out)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-6)
    assert losses == pytest.approx(want_losses, rel=1e-5)
    assert images[-2:] == [4, 4]


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.Dropout(0.5), modules.MinusMean()])
def test_images_stay_together_where_layers_mix_them_or_draw_random_numbers(
    norm: nn.Module, images: list[int | None]
) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 1, 6, 6)
    model, vector, y = make(convolving(norm), x)
    client_gradients(model, vector, x, y, [6, 6], torch.empty(2, model.d))
    assert images == [None, None]
