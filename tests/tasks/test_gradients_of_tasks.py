"""Every fast way to a gradient gives what autograd gives, whatever the task."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from scapegoat.gradients import GradientOracle, client_gradients, clipped_gradients
from scapegoat.gradients.perceptron import Perceptron
from scapegoat.modelling.flat_model import FlatModel
from scapegoat.tasks import TaskSpec
from tests.tasks.test_tasks_match_reference import every_task

FEATURES = 6


class Squeezed(nn.Module):
    """One output per record without a dimension of its own, by a layer that is no perceptron's."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(FEATURES, 5), nn.Linear(5, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out = self.head(torch.tanh(self.body(x)))
        return out[:, 0] if out.shape[1] == 1 else out


def modules(outputs: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(FEATURES, 5), nn.ReLU(), nn.Linear(5, outputs)), Squeezed(outputs)]


@pytest.mark.parametrize("kind", [0, 1], ids=["perceptron", "other"])
@pytest.mark.parametrize(("task", "y", "width"), every_task(), ids=lambda value: getattr(value, "name", ""))
def test_gradients_are_autograds(task: TaskSpec, y: Tensor, width: int, kind: int) -> None:
    outputs = task.outputs(width)
    model = FlatModel(modules(outputs)[kind], (FEATURES,), outputs, task=task)
    vector = model.initial()
    x = torch.randn(len(y), FEATURES, generator=torch.Generator().manual_seed(1))
    assert (Perceptron.of(model, x, y) is not None) == (kind == 0)

    def autograd(rows: slice) -> Tensor:
        model.point_at(vector)
        loss = task.losses(model.module(x[rows]), y[rows], "mean")
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, model.parameters)])

    sizes = [10, len(y) - 10]
    out = torch.empty(2, model.d)
    losses = client_gradients(model, vector, x, y, sizes, out)
    torch.testing.assert_close(out, torch.stack([autograd(slice(0, 10)), autograd(slice(10, None))]))
    assert losses[0] == pytest.approx(float(task.losses(model.logits(vector, x[:10]), y[:10], "mean")), rel=1e-5)
    oracle = GradientOracle(model, vector)
    torch.testing.assert_close(oracle.mean(x, y), autograd(slice(None)))
    alone = torch.stack([autograd(slice(i, i + 1)) for i in range(5)])
    samples = oracle.per_sample(x[:5], y[:5])
    torch.testing.assert_close(samples.gram(), (alone @ alone.T).double(), rtol=1e-4, atol=1e-5)
    clipped = torch.empty(1, model.d)
    clipped_gradients(model, vector, x[:5], y[:5], [5], 0.1, clipped)
    short = alone * (0.1 / alone.norm(dim=1)).clamp(max=1)[:, None]
    torch.testing.assert_close(clipped[0], short.sum(0), rtol=1e-4, atol=1e-5)
