import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from scapegoat.kernels.group_norm import accurate
from scapegoat.models import FlatModel


def norm_of(groups, channels, affine=True):
    layer = nn.GroupNorm(groups, channels * groups, affine=affine)
    if affine:
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    return layer


def exact(layer, x):
    weight, bias = (p.double() if p is not None else None for p in (layer.weight, layer.bias))
    return F.group_norm(x.double(), layer.num_groups, weight, bias, layer.eps)


@settings(deadline=None)
@given(
    images=st.integers(1, 3),
    groups=st.integers(1, 5),
    channels=st.integers(1, 5),
    height=st.integers(2, 17),
    width=st.integers(1, 17),
    mean=st.sampled_from([0.0, 1.0, -1e3]),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 1e6]),
    affine=st.booleans(),
    seed=st.integers(0, 9),
)
def test_group_norm_is_exact_in_both_memory_layouts(
    images, groups, channels, height, width, mean, spread, affine, seed
):
    torch.manual_seed(seed)
    layer = norm_of(groups, channels, affine)
    x = mean + spread * torch.randn(images, groups * channels, height, width)
    forward = accurate(layer)
    with torch.no_grad():
        for layout in (torch.contiguous_format, torch.channels_last):
            # What the float32 input itself can lose, seen from its deviations.
            lost = 1e-5 + 1e-6 * abs(mean) / max(float(x.std()) if x.numel() > 1 else 0.0, layer.eps**0.5)
            torch.testing.assert_close(
                forward(x.contiguous(memory_format=layout)).double(), exact(layer, x), rtol=1e-4, atol=10 * lost
            )


def test_group_norm_passes_nan_and_infinity_on_and_keeps_images_apart():
    layer = norm_of(2, 2)
    x = torch.randn(3, 4, 8, 8).contiguous(memory_format=torch.channels_last)
    alone = accurate(layer)(x)[2]
    x[0, 0, 0, 0], x[1, 3, 2, 2] = float("nan"), float("inf")
    with torch.no_grad():
        out = accurate(layer)(x)
    assert out[0, :2].isnan().all()
    assert out[0, 2:].isfinite().all()
    assert out[1, 2:].isnan().all()
    assert torch.equal(out[2], alone)


def test_a_model_with_group_norm_scores_images_of_a_large_mean_as_it_was_trained_on_them():
    torch.manual_seed(0)
    module = nn.Sequential(nn.GroupNorm(4, 16), nn.Conv2d(16, 4, 3), nn.Flatten(), nn.Linear(4 * 30 * 30, 3))
    model = FlatModel(module, (16, 32, 32), 3)
    x = 1e3 + torch.randn(5, 16, 32, 32)
    with torch.no_grad():
        expected = model.module(x)
    torch.testing.assert_close(model.logits(model.initial(), x), expected, rtol=1e-3, atol=1e-3)
    assert "forward" not in vars(module[0])
