"""DP-SGD around a training step of one's own: gradients as a plain loop and Opacus have them, epsilon as accounted."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scapegoat.accounting import record_epsilon
from scapegoat.errors import InputError
from scapegoat.integrations.private_step import PrivateStep

CLIP, BATCH = 0.3, 16


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def pictures() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 4, 3))


def records(count: int = 20, shape: tuple[int, ...] = (6,)) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(count, *shape, generator=draw), torch.randint(3, (count,), generator=draw)


def loop(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Algorithm 1 record by record, without noise."""
    sums = [torch.zeros_like(p) for p in module.parameters()]
    for record, label in zip(x, y, strict=True):
        found = torch.autograd.grad(F.cross_entropy(module(record[None]), label[None]), list(module.parameters()))
        norm = torch.sqrt(sum(g.square().sum() for g in found))
        for total, g in zip(sums, found, strict=True):
            total += g * min(1.0, CLIP / float(norm))
    return [total / BATCH for total in sums]


@pytest.mark.parametrize(("make", "shape"), [(model, (6,)), (pictures, (1, 6, 6))])
def test_without_noise_it_is_the_plain_loop(make, shape) -> None:
    module, (x, y) = make(), records(shape=shape)
    PrivateStep(module, clip=CLIP, noise=0.0, batch_size=BATCH).gradients(x, y)
    for parameter, expected in zip(module.parameters(), loop(module, x, y), strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-5, atol=1e-6)


def test_without_noise_it_is_what_opacus_computes() -> None:
    opacus = pytest.importorskip("opacus")
    module, (x, y) = model(), records()
    theirs = opacus.GradSampleModule(copy.deepcopy(module))
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=BATCH,
    )
    F.cross_entropy(theirs(x), y).backward()
    optimizer.pre_step()
    PrivateStep(module, clip=CLIP, noise=0.0, batch_size=BATCH).gradients(x, y)
    for ours, other in zip(module.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_the_noise_has_the_promised_size_and_is_drawn_again_in_every_step() -> None:
    module = nn.Sequential(nn.Linear(300, 200), nn.Linear(200, 3))
    private = PrivateStep(module, clip=0.5, noise=2.0, batch_size=10)
    nothing = torch.empty(0, 300), torch.empty(0, dtype=torch.int64)
    private.gradients(*nothing)
    first = module[0].weight.grad.clone()
    private.gradients(*nothing)
    assert abs(float(first.std()) - 2.0 * 0.5 / 10) < 0.002
    assert not torch.equal(first, module[0].weight.grad)


def test_the_model_and_its_optimizer_stay_the_users_own() -> None:
    module, (x, y) = model(), records()
    before = [p.detach().clone() for p in module.parameters()]
    parameters = list(module.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    private = PrivateStep(module, clip=CLIP, noise=1.0, batch_size=BATCH)
    private.gradients(x, y)
    assert all(torch.equal(p, b) for p, b in zip(parameters, before, strict=True))
    optimizer.step()
    assert not torch.equal(parameters[0], before[0])
    assert list(module.parameters()) == parameters
    private.gradients(x, y)  # of the parameters as they are now
    PrivateStep(module, clip=CLIP, noise=0.0, batch_size=BATCH).gradients(x, y)
    for parameter, expected in zip(module.parameters(), loop(module, x, y), strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-5, atol=1e-6)


def test_batches_hold_each_record_with_the_same_chance_and_epsilon_counts_the_steps() -> None:
    x, y = records(100)
    private = PrivateStep(model(), clip=CLIP, noise=1.0, batch_size=BATCH, seed=3)
    sizes = []
    for part, labels in private.batches(x, y, epochs=20):
        sizes.append(len(labels))
        private.gradients(part, labels)
    assert len(sizes) == private.steps == 20 * 7
    assert len(set(sizes)) > 5
    assert abs(sum(sizes) / len(sizes) - BATCH) < 1.5
    assert private.epsilon(1e-5) == record_epsilon(140, 1.0, BATCH / 100, 1e-5)


def test_noise_is_not_repeatable_unless_a_seed_is_given() -> None:
    x, y = records()
    drawn = []
    for seed in (None, None, 7, 7):
        module = model()
        PrivateStep(module, noise=1.0, seed=seed).gradients(x, y)
        drawn.append(module[0].weight.grad)
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[2], drawn[3])


@pytest.mark.parametrize(
    ("options", "says"), [({"clip": 0.0}, "clip"), ({"noise": -1.0}, "noise"), ({"batch_size": 0}, "batch_size")]
)
def test_options_that_promise_nothing_are_refused(options: dict[str, float], says: str) -> None:
    with pytest.raises(InputError, match=says):
        PrivateStep(model(), **options)


def test_what_would_make_the_promise_untrue_is_refused() -> None:
    x, y = records()
    mixing = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(InputError, match="BatchNorm1d"):
        PrivateStep(mixing).gradients(x, y)
    private = PrivateStep(model())
    private.gradients(x, y)
    with pytest.raises(InputError, match="batches"):
        private.epsilon()
    next(private.batches(x, y))
    with pytest.raises(InputError, match="one set of records"):
        next(private.batches(x[:5], y[:5]))
