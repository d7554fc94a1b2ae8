"""The server's optimizer steps as torch's own does, and continues from its state."""

import pytest
import torch

from scapegoat.errors import InputError
from scapegoat.optimizers import OptimizerOptions, ServerOptimizer

TORCH = {
    "sgd": lambda p: torch.optim.SGD([p], lr=0.05),
    "momentum": lambda p: torch.optim.SGD([p], lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam([p], lr=0.05),
}


def updates(steps: int, d: int = 37) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(d, generator=generator) for _ in range(steps)]


@pytest.mark.parametrize("name", sorted(TORCH))
def test_steps_agree_with_torch(name):
    vector = torch.linspace(-1, 1, 37)
    parameter = torch.nn.Parameter(vector.clone())
    reference = TORCH[name](parameter)
    optimizer = ServerOptimizer(OptimizerOptions(optimizer=name, lr=0.05))
    for update in updates(6):
        vector = optimizer.step(vector, update)
        parameter.grad = update.clone()
        reference.step()
    torch.testing.assert_close(vector, parameter.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(TORCH))
def test_a_saved_state_continues_bit_for_bit(name):
    options = OptimizerOptions(optimizer=name)
    whole, halved = ServerOptimizer(options), ServerOptimizer(options)
    a = b = torch.zeros(37)
    for i, update in enumerate(updates(6)):
        if i == 3:
            halved = ServerOptimizer(options, state=halved.state)
        a, b = whole.step(a, update), halved.step(b, update)
    assert torch.equal(a, b)


def test_step_leaves_its_inputs_alone():
    vector, update = torch.ones(5), torch.full((5,), 2.0)
    for name in TORCH:
        ServerOptimizer(OptimizerOptions(optimizer=name)).step(vector, update)
    assert torch.equal(vector, torch.ones(5))
    assert torch.equal(update, torch.full((5,), 2.0))


def test_a_state_of_another_optimizer_is_refused():
    with pytest.raises(InputError, match="optimizer adam"):
        ServerOptimizer(OptimizerOptions(optimizer="adam"), state={"velocity": torch.zeros(3)})


@pytest.mark.parametrize("name", sorted(TORCH))
@pytest.mark.parametrize(
    "odd",
    [
        torch.arange(16.0)[::2],
        torch.arange(64.0).view(8, 8)[:, 3],
        torch.tensor(2.0).expand(8),
        torch.arange(8.0, dtype=torch.float64),
    ],
)
def test_an_update_counts_by_its_values_however_it_lies_in_memory(name, odd):
    options = OptimizerOptions(optimizer=name)
    plain, other = ServerOptimizer(options), ServerOptimizer(options)
    vector = torch.linspace(-1, 1, 8)
    for _ in range(3):
        assert torch.equal(plain.step(vector, odd.float().clone()), other.step(vector, odd))


@pytest.mark.parametrize("name", sorted(TORCH))
@pytest.mark.parametrize("wrong", [torch.ones(7), torch.ones(9), torch.ones(1), torch.ones(1, 8)])
def test_an_update_of_another_length_is_refused(name, wrong):
    with pytest.raises(InputError, match=r"update of shape .* for parameters of \(8,\)"):
        ServerOptimizer(OptimizerOptions(optimizer=name)).step(torch.ones(8), wrong)


def test_moments_of_another_length_are_refused():
    state = {"first": torch.zeros(7), "second": torch.zeros(7), "steps": torch.tensor(1)}
    with pytest.raises(ValueError, match="moments of its length"):
        ServerOptimizer(OptimizerOptions(), state=state).step(torch.ones(8), torch.ones(8))
