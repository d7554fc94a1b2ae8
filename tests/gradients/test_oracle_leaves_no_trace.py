"""The oracle borrows the model: it leaves no hook, and answers stay valid while they are held."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from scapegoat.gradients import GradientOracle
from scapegoat.modelling.flat_model import FlatModel
from tests.gradients import modules


def mlp(features: int = 6) -> FlatModel:
    torch.manual_seed(0)
    return FlatModel(nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 3)), (features,), 3)


def hooks(model: FlatModel) -> int:
    return sum(len(m._forward_hooks) + ("forward" in vars(m)) for m in model.module.modules())


def test_no_hook_stays_behind() -> None:
    model = mlp()
    oracle = GradientOracle(model, model.initial())
    oracle.per_sample(torch.randn(4, 6), torch.zeros(4, dtype=torch.long))
    assert hooks(model) == 0
    with pytest.raises(RuntimeError):
        oracle.per_sample(torch.randn(4, 5), torch.zeros(4, dtype=torch.long))
    assert hooks(model) == 0


def test_random_numbers_are_not_drawn() -> None:
    model = FlatModel(nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)), (6,), 3)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    oracle = GradientOracle(model, model.initial())
    oracle.per_sample(torch.ones(4, 6), torch.zeros(4, dtype=torch.long))
    oracle.mean(torch.ones(4, 6), torch.zeros(4, dtype=torch.long))
    assert torch.equal(torch.get_rng_state(), before)


def test_answers_at_its_own_parameters_after_the_model_was_moved() -> None:
    model = mlp()
    here, there = model.initial(), model.initial() + 1
    x, y = torch.randn(4, 6), torch.zeros(4, dtype=torch.long)
    oracle = GradientOracle(model, here)
    want = oracle.mean(x, y)
    GradientOracle(model, there).mean(x, y)
    assert torch.equal(oracle.mean(x, y), want)


def test_two_answers_held_at_once_do_not_share_memory() -> None:
    torch.manual_seed(0)
    model = FlatModel(modules.Head(nn.Conv2d(2, 4, 3), 4), (2, 5, 5), 3)
    oracle = GradientOracle(model, model.initial())
    y = torch.zeros(4, dtype=torch.long)
    first = oracle.per_sample(torch.randn(4, 2, 5, 5), y)
    before = first.gram()
    second = oracle.per_sample(torch.randn(4, 2, 5, 5), y)
    assert torch.equal(first.gram(), before)
    assert not torch.equal(second.gram(), before)


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operation made."""

    floats = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made, Tensor):
                self.floats = max(self.floats, made.untyped_storage().nbytes() // 4)
        return out


@pytest.mark.parametrize("density", [0.05, 1.0])
def test_nothing_of_the_size_of_samples_times_parameters_is_made_for_an_mlp(density: float) -> None:
    torch.manual_seed(0)
    model = FlatModel(nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 20)), (300,), 20)
    x, y = torch.rand(100, 300), torch.arange(100) % 20
    x = x * (torch.rand_like(x) < density)
    oracle = GradientOracle(model, model.initial())
    oracle.per_sample(x, y)
    vectors = torch.randn(3, model.d)
    largest = Largest()
    with largest:
        have = oracle.per_sample(x, y)
        have.gram()
        for vector in vectors:
            have.dot(vector[None])
        have.combine(torch.ones(100))
        oracle.mean(x, y)
    assert 0 < largest.floats <= 3 * model.d  # of 100 samples; the three vectors themselves pass by as arguments


def test_a_layer_without_a_part_in_the_loss_has_a_zero_gradient() -> None:
    torch.manual_seed(0)
    model = FlatModel(modules.NeverCalled(6), (6,), 3)
    oracle = GradientOracle(model, model.initial())
    x, y = torch.randn(4, 6), torch.zeros(4, dtype=torch.long)
    idle = slice(42, 84)
    assert [name for name, _ in model.layout][2] == "idle.weight"
    for _ in range(3):  # memory is not cleared, so that what is left over from before would show
        torch.full((model.d,), torch.nan)
        assert not oracle.per_sample(x, y).combine(torch.ones(4))[idle].any()
        assert not oracle.mean(x, y)[idle].any()
