"""Gram, dot, combine and mean equal one-sample-at-a-time autograd, whatever the module is made of."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scapegoat import models
from scapegoat.gradients import GradientOracle, SampleGradients
from scapegoat.modelling.flat_model import FlatModel
from tests.gradients import modules
from tests.reference.gradients import sample_gradients

some = settings(max_examples=25, deadline=None)


def check(module: nn.Module, x: Tensor, classes: int = modules.CLASSES, tolerance: float = 2e-5) -> SampleGradients:
    model = FlatModel(module, tuple(x.shape[1:]), classes)
    vector = model.initial()
    y = torch.arange(len(x)) % classes
    want = sample_gradients(model, vector, x, y)
    oracle = GradientOracle(model, vector)
    have = oracle.per_sample(x, y)
    vectors = torch.randn(3, model.d)
    weights = torch.randn(len(x))
    size = float(want.double().norm(dim=1).max())
    assert size > 0
    assert len(have) == len(x)
    assert have.gram().dtype == have.dot(vectors).dtype == torch.float64
    close(have.gram(), want.double() @ want.double().T, tolerance * size**2)
    close(have.dot(vectors), want.double() @ vectors.double().T, tolerance * size * float(vectors.norm(dim=1).max()))
    close(have.combine(weights), weights @ want, tolerance * size * float(weights.norm()))
    close(oracle.mean(x, y), want.mean(0), tolerance * size)
    return have


def close(have: Tensor, want: Tensor, tolerance: float) -> None:
    assert have.shape == want.shape
    assert float((have - want).abs().max()) <= tolerance


@some
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_linear(seed: int, samples: int, features: int, width: int, bias: bool) -> None:
    torch.manual_seed(seed)
    check(
        nn.Sequential(nn.Linear(features, width, bias=bias), nn.Tanh(), nn.Linear(width, modules.CLASSES)),
        torch.randn(samples, features),
    )


@some
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 9), st.integers(1, 8), st.integers(4, 8), st.booleans())
def test_linear_and_layer_norm_over_positions(
    seed: int, samples: int, positions: int, features: int, width: int, bias: bool
) -> None:
    torch.manual_seed(seed)
    check(modules.OverPositions(features, width, bias), torch.randn(samples, positions, features))


@some
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    groups = data.draw(st.sampled_from([1, 1, 2]))
    before, after = groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 3))
    dims = data.draw(st.sampled_from([1, 2, 2, 3]))
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
    mode = data.draw(st.sampled_from(["zeros", "zeros", "circular", "replicate"]))
    stride = data.draw(st.integers(1, 2))
    padding = data.draw(st.sampled_from([0, 1, 2, *(["same"] if stride == 1 else [])]))
    kernel, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    conv = kind(
        before, after, kernel, stride, padding, dilation, groups, bias=data.draw(st.booleans()), padding_mode=mode
    )
    x = torch.randn(data.draw(st.integers(1, 5)), before, *[data.draw(st.integers(5, 7)) for _ in range(dims)])
    check(modules.Head(nn.Sequential(conv, nn.Tanh()), after), x)


@some
@given(st.integers(0, 2**31), st.sampled_from(["group", "instance", "batch", "layer"]), st.integers(1, 5))
def test_normalisation(seed: int, kind: str, samples: int) -> None:
    torch.manual_seed(seed)
    norm: nn.Module = {
        "group": nn.GroupNorm(2, 4),
        "instance": nn.InstanceNorm2d(4, affine=True),
        "batch": nn.BatchNorm2d(4),
        "layer": nn.LayerNorm([4, 3, 3]),
    }[kind]
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    if isinstance(norm, nn.BatchNorm2d):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    check(modules.Head(nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.Tanh()), 4), torch.randn(samples, 2, 5, 5))


@some
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 7))
def test_embedding(seed: int, samples: int, positions: int) -> None:
    torch.manual_seed(seed)
    tokens = torch.randint(11, (samples, positions)).float()
    tokens[0, 0] = 3.0  # not all padding, or no gradient is left to compare
    check(modules.Words(11, 4, recurrent=False, attention=False), tokens)


@pytest.mark.parametrize(("recurrent", "attention"), [(True, False), (False, True), (True, True)])
def test_recurrence_and_attention(recurrent: bool, attention: bool) -> None:
    torch.manual_seed(0)
    check(modules.Words(11, 4, recurrent, attention), torch.randint(11, (7, 5)).float())


@pytest.fixture
def batched_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going through the samples one by one is not allowed."""

    def refuse(*_: object) -> None:
        raise AssertionError("one by one")

    monkeypatch.setattr("scapegoat.gradients.direct._one_by_one", refuse)


def test_attention_and_own_parameters_are_batched(batched_only: None) -> None:
    torch.manual_seed(0)
    check(modules.Words(11, 4, recurrent=False), torch.randint(1, 11, (40, 5)).float())
    check(modules.OwnParameters(5), torch.randn(40, 5))
    check(modules.Tied(5), torch.randn(40, 5))


def test_transformer_encoder_layer(batched_only: None) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    body = nn.Sequential(layer, nn.Flatten(), nn.Linear(4 * 8, modules.CLASSES))
    check(body, torch.randn(5, 4, 8))


@pytest.mark.parametrize(
    "kind",
    [
        modules.CalledTwice,
        modules.Tied,
        modules.ReadsAnothersWeight,
        modules.NeverCalled,
        modules.OwnParameters,
        modules.Backwards,
        modules.Overwrites,
        modules.MixesInTraining,
    ],
)
@pytest.mark.parametrize("samples", [1, 3, 6])
def test_odd_uses_of_parameters(kind: type[nn.Module], samples: int) -> None:
    torch.manual_seed(1)
    check(kind(5), torch.randn(samples, 5))


@pytest.mark.parametrize("kind", [modules.PositionsFirst, modules.Flattened])
@pytest.mark.parametrize("samples", [1, 3, 4, 6])
def test_positions_are_not_mistaken_for_samples(kind: type[nn.Module], samples: int) -> None:
    torch.manual_seed(2)
    check(kind(5), torch.randn(samples, 4, 5))


@pytest.mark.parametrize("frozen", ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight"])
def test_frozen_parameters_have_no_place_in_the_vector(frozen: str) -> None:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, modules.CLASSES))
    module.get_parameter(frozen).requires_grad_(False)
    check(module, torch.randn(4, 1, 8))


def test_weight_normalised_layers() -> None:
    torch.manual_seed(4)
    layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(5, 4))
    check(nn.Sequential(layer, nn.Tanh(), nn.Linear(4, modules.CLASSES)), torch.randn(6, 5))


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_resnet20(norm: str) -> None:
    torch.manual_seed(5)
    check(models.get("resnet20", norm=norm).build((3, 16, 16), 10), torch.randn(4, 3, 16, 16), classes=10)


def test_many_samples_pass_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(6)
    monkeypatch.setattr("scapegoat.gradients.layer_map.ACTIVATION_FLOATS", 100)
    monkeypatch.setattr("scapegoat.gradients.layer_gradients.BLOCK_FLOATS", 64)
    check(modules.Head(nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4)), 4), torch.randn(21, 2, 5, 5))
    check(modules.OverPositions(4, 6), torch.randn(21, 5, 4))
    check(modules.OverPositions(40, 60), torch.randn(21, 2, 40))
    check(modules.Words(11, 4, recurrent=False, attention=False), torch.randint(1, 11, (21, 5)).float())
    check(nn.Sequential(nn.Linear(70, 5), nn.ReLU(), nn.Linear(5, 3)), (torch.rand(21, 70) < 0.1).float())


def test_gradients_too_large_to_keep_are_computed_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(7)
    monkeypatch.setattr("scapegoat.gradients.direct.KEPT_FLOATS", 400)
    check(modules.Words(11, 4, recurrent=False), torch.randint(1, 11, (6, 5)).float())
    check(modules.Words(11, 4, attention=False), torch.randint(1, 11, (6, 5)).float())


def test_python_that_looks_at_values_cannot_be_batched_and_is_followed() -> None:
    torch.manual_seed(8)

    class Branches(modules.OwnParameters):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.flatten()[0] > 0 else -x)

    x, y = torch.randn(6, 5), torch.arange(6) % modules.CLASSES
    assert 0 < int((x[:, 0] > 0).sum()) < 6
    model = FlatModel(Branches(5), (5,), modules.CLASSES)
    want = sample_gradients(model, model.initial(), x, y)
    have = GradientOracle(model, model.initial()).per_sample(x, y)
    close(have.gram(), want.double() @ want.double().T, 1e-5)
    close(have.combine(torch.ones(6)), want.sum(0), 1e-5)
