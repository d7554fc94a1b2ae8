"""Gradients of linear layers with ReLU, taken by hand, are autograd's; anything else is left to autograd."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scapegoat.gradients import client_gradients
from scapegoat.gradients.perceptron import Perceptron
from scapegoat.modelling.flat_model import FlatModel

FEATURES, CLASSES = 12, 3


def stack(widths: list[int], bias: bool = True, inplace: bool = False, flatten: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()] if flatten else []
    for before, after in itertools.pairwise([FEATURES, *widths, CLASSES]):
        layers += [nn.Linear(before, after, bias=bias), nn.ReLU(inplace)]
    return nn.Sequential(*layers[:-1])


def flat(module: nn.Module, shape: tuple[int, ...] = (FEATURES,)) -> FlatModel:
    return FlatModel(module, shape, CLASSES)


def by_autograd(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, sizes: list[int]) -> tuple[Tensor, list[float]]:
    found = [model.gradient(vector, a, b) for a, b in zip(x.split(sizes), y.split(sizes), strict=True)]
    return torch.stack([g for g, _ in found]), [loss for _, loss in found]


@settings(deadline=None, max_examples=300)
@given(
    widths=st.lists(st.integers(1, 9), max_size=3),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    bias=st.booleans(),
    inplace=st.booleans(),
    flatten=st.booleans(),
    density=st.sampled_from([0.0, 0.1, 1.0]),
    scale=st.sampled_from([0.0, 1e-30, 1.0, 1e4]),
    room=st.sampled_from([0, 10**6]),
    padding=st.sampled_from([0, 5]),
    seed=st.integers(0, 99),
)
def test_every_client_gets_the_gradient_that_autograd_gives(
    widths: list[int],
    sizes: list[int],
    bias: bool,
    inplace: bool,
    flatten: bool,
    density: float,
    scale: float,
    room: int,
    padding: int,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    shape = (3, 4) if flatten else (FEATURES,)
    model = flat(stack(widths, bias, inplace, flatten), shape)
    vector = model.initial()
    x = scale * torch.randn(sum(sizes), *shape) * (torch.rand(sum(sizes), *shape) < density)
    y = torch.randint(CLASSES, (sum(sizes),))
    want, want_losses = by_autograd(model, vector, x, y, sizes)
    assert Perceptron.of(model, x, y) is not None
    out = torch.full((len(sizes), model.d + padding), torch.nan)[:, : model.d]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scapegoat.gradients.perceptron.LITTLE", room)  # few clients per pass, or all
        losses = client_gradients(model, vector, x, y, sizes, out)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-6 * max(1.0, scale))
    assert losses == pytest.approx(want_losses, rel=1e-4, abs=1e-6)


def test_the_activations_of_many_clients_lie_where_later_gradients_will_be_written() -> None:
    """Nothing that a pass leaves there is seen by the clients that pass later."""
    torch.manual_seed(0)
    model = flat(stack([40, 20]))
    sizes = [9] * 12
    x, y = torch.randn(sum(sizes), FEATURES), torch.arange(sum(sizes)) % CLASSES
    layer_map = Perceptron.of(model, x, y)
    assert layer_map is not None
    want, _ = by_autograd(model, vector := model.initial(), x, y, sizes)
    out = torch.full((12, model.d), torch.nan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scapegoat.gradients.perceptron.LITTLE", 0)
        assert layer_map._together(sizes, 0, contiguous=True) > layer_map._together(sizes, 0, contiguous=False) > 0
        client_gradients(model, vector, x, y, sizes, out)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("room", [0, 10**6])
def test_sparse_records_are_looked_up_client_by_client_alike(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    monkeypatch.setattr("scapegoat.kernels.sparse_products.SparseRows.pays", lambda *_: True)
    monkeypatch.setattr("scapegoat.gradients.perceptron.LITTLE", room)
    torch.manual_seed(0)
    model = flat(stack([70]))
    sizes = [5, 1, 7]
    x, y = (torch.rand(13, FEATURES) < 0.1).float(), torch.arange(13) % CLASSES
    want, _ = by_autograd(model, vector := model.initial(), x, y, sizes)
    out = torch.full((3, model.d), torch.nan)
    client_gradients(model, vector, x, y, sizes, out)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_spoilt_record_spoils_its_own_client_alone(bad: float) -> None:
    torch.manual_seed(0)
    model = flat(stack([8, 5]))
    vector, x, y = model.initial(), torch.randn(6, FEATURES), torch.arange(6) % CLASSES
    clean = torch.empty(3, model.d)
    client_gradients(model, vector, x, y, [2, 2, 2], clean)
    x[2, 4] = bad
    want, _ = by_autograd(model, vector, x, y, [2, 2, 2])
    out = torch.empty(3, model.d)
    losses = client_gradients(model, vector, x, y, [2, 2, 2], out)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-6, equal_nan=True)
    assert not out[1].isfinite().all()
    assert torch.equal(out[[0, 2]], clean[[0, 2]])
    assert [loss == loss for loss in losses] == [True, False, True]


def test_a_diverged_model_gives_gradients_that_are_not_finite() -> None:
    model = flat(stack([8]))
    vector, out = torch.full((model.d,), torch.nan), torch.zeros(1, model.d)
    client_gradients(model, vector, torch.randn(4, FEATURES), torch.zeros(4).long(), [4], out)
    assert out.isnan().any()


def frozen() -> nn.Module:
    module = stack([8])
    next(module.parameters()).requires_grad_(False)
    return module


def shared() -> nn.Module:
    layer = nn.Linear(FEATURES, FEATURES)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(FEATURES, CLASSES))


def hooked() -> nn.Module:
    module = stack([8])
    module[0].register_forward_hook(lambda module, args, output: output * 2)
    return module


def overridden() -> nn.Module:
    module = stack([8])
    module[1].forward = torch.tanh
    return module


def reused(*places: int) -> nn.Module:
    """A `Sequential` of the named ones among two layers that fit each other and one ReLU: some come twice."""
    parts = [nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, CLASSES)]
    return nn.Sequential(*(parts[place] for place in places))


def more_parameters() -> nn.Module:
    module = stack([8])
    module[0].extra = nn.Parameter(torch.zeros(5))
    return module


def bias_first() -> nn.Module:
    module = stack([8])
    weight = module[0].weight
    del module[0].weight
    module[0].weight = weight
    return module


def partly_frozen() -> nn.Module:
    module = stack([8])
    module[0].weight.register_hook(lambda grad: grad * 0.5)
    return module


class Skipping(nn.Sequential):
    """A `Sequential` that is not one."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input) * 2


@pytest.mark.parametrize(
    "module",
    [
        frozen(),
        shared(),
        hooked(),
        overridden(),
        reused(0, 1, 2, 1),
        reused(0, 1, 0, 1, 2),
        reused(0, 1, 0, 2),
        more_parameters(),
        bias_first(),
        partly_frozen(),
        Skipping(*stack([8])),
        nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES)),
        nn.Sequential(nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)),
        nn.Sequential(nn.Linear(FEATURES, CLASSES), nn.ReLU()),
        nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, CLASSES)),
        nn.utils.parametrizations.weight_norm(nn.Linear(FEATURES, CLASSES)),
    ],
)
def test_any_other_module_is_left_to_autograd(module: nn.Module) -> None:
    torch.manual_seed(0)
    model = flat(module)
    vector, x, y = model.initial(), torch.randn(6, FEATURES), torch.arange(6) % CLASSES
    assert Perceptron.of(model, x, y) is None
    want, _ = by_autograd(model, vector, x, y, [4, 2])
    out = torch.empty(2, model.d)
    client_gradients(model, vector, x, y, [4, 2], out)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-6)


def test_a_hook_on_all_modules_is_obeyed() -> None:
    torch.manual_seed(0)
    model = flat(stack([8]))
    vector, x, y = model.initial(), torch.randn(6, FEATURES), torch.arange(6) % CLASSES
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: output * 2)
    try:
        assert Perceptron.of(model, x, y) is None
        want, _ = by_autograd(model, vector, x, y, [4, 2])
        out = torch.empty(2, model.d)
        client_gradients(model, vector, x, y, [4, 2], out)
    finally:
        handle.remove()
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-6)
    assert Perceptron.of(model, x, y) is not None


def test_labels_that_are_not_whole_numbers_of_64_bits_are_left_to_autograd() -> None:
    model = flat(stack([8]))
    assert Perceptron.of(model, torch.randn(3, FEATURES), torch.arange(3).to(torch.uint8)) is None


def test_a_linear_layer_over_positions_is_left_to_autograd() -> None:
    model = flat(nn.Sequential(nn.Linear(FEATURES, CLASSES)))
    assert Perceptron.of(model, torch.randn(6, 2, FEATURES), torch.zeros(6).long()) is None
