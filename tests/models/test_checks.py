"""What is refused before any run, and in which words."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from scapegoat import models
from scapegoat.errors import InputError


class Through(nn.Module):
    """A linear layer whose logits pass through a function, in both modes or in one."""

    def __init__(self, change, training_only=False):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.change = change
        self.training_only = training_only

    def forward(self, x):
        logits = self.layer(x)
        return self.change(logits) if self.training or not self.training_only else logits


def fail(_logits):
    raise KeyError("label")


def refusal(module, shape=(6,)):
    with pytest.raises(InputError) as error:
        models.build(models.given(module), shape, 3, seed=0)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (Through(lambda z: (z, z)), "model Through: returned a tuple; logits of shape (2, 3) are expected"),
        (Through(lambda z: z.argmax(1, keepdim=True).expand(2, 3)), "returned torch.int64"),
        (Through(lambda z: z / 0 * 0), "outputs for records of zeros are not finite"),
        (Through(lambda z: torch.log(-z.abs() - 1)), "not finite"),
        (nn.Sequential(nn.Linear(6, 3), nn.Threshold(1e9, float("inf"))), "not finite"),
        (Through(fail, training_only=True), "in training mode raised KeyError: 'label'"),
        (Through(lambda z: (z, z), training_only=True), "returned a tuple in training mode"),
        (Through(lambda z: z[:, :2], training_only=True), "in training mode to (2, 2)"),
        (Through(lambda z: z * float("nan"), training_only=True), "in training mode are not finite"),
        (Through(torch.Tensor.detach), "do not lead back to its parameters"),
        (Through(lambda z: torch.ones(2, 3, requires_grad=True)), "do not lead back to its parameters"),
        (nn.Flatten(), "model Flatten: "),
    ],
)
def test_a_module_that_cannot_be_trained_or_evaluated_is_refused_in_one_line(module, says):
    assert says in refusal(module)


def test_a_module_that_fails_on_ordinary_values_only_is_refused():
    class OnlyZeros(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            return self.layer(x) + torch.where(x.sum(1, keepdim=True) > 0, torch.nan, 0.0)

    assert "values in 0..1 are not finite" in refusal(OnlyZeros())


def test_a_module_without_trainable_parameters_is_refused_by_name():
    assert "model Linear: has no trainable parameters" in refusal(nn.Linear(6, 3).requires_grad_(False))


def test_the_check_leaves_no_trace_in_statistics_and_random_streams():
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    streams = torch.random.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    built = models.build(models.given(module), (6,), 3, seed=0).module
    assert all(torch.equal(value, before[name]) for name, value in built.state_dict().items())
    assert torch.equal(streams[0], torch.random.get_rng_state())
    assert streams[1:] == (np.random.get_state()[1].tolist(), random.getstate())  # noqa: NPY002


def test_lazy_layers_are_drawn_from_the_seed_too():
    def make(classes):
        return nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(classes))

    one, again, other = (models.build(models.given(make), (6,), 3, seed=s).initial() for s in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_images_that_a_module_flattens_with_view_are_evaluated_and_trained_on():
    class Viewing(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 6 * 6, 3)

        def forward(self, x):
            x = self.convolution(x)
            return self.head(x.view(x.size(0), -1))

    model = models.build(models.given(Viewing()), (3, 8, 8), 3, seed=0)
    x = torch.rand(5, 3, 8, 8)
    assert model.logits(model.initial(), x).shape == (5, 3)
    assert model.gradient(model.initial(), x, torch.tensor([0, 1, 2, 0, 1]))[0].isfinite().all()


MODULES = {
    "raises.py": (
        "def make():\n    raise ValueError('boom')\n",
        "building it raised ValueError: boom (raises.py, line 2)",
    ),
    "huge.py": (
        "from torch import nn\n\n\ndef make():\n    return nn.Linear(6, 10**15)\n",
        "it does not fit into memory (huge.py, line 5); use smaller layers",
    ),
    "leaves.py": ("import sys\n\n\ndef make():\n    sys.exit(7)\n", "raised sys.exit(7) (leaves.py, line 5)"),
    "divides.py": (
        "x = 1\ny = 1 / 0\n",
        "importing divides failed: ZeroDivisionError: division by zero (divides.py, line 2)",
    ),
    "misspelt.py": ("def make(:\n", "importing misspelt failed: SyntaxError"),
    "quits.py": ("raise SystemExit('no')\n", "importing quits failed: sys.exit('no') (quits.py, line 1)"),
    "wants.py": ("import a_package_that_is_not_there\n", "importing wants failed: ModuleNotFoundError"),
}


@pytest.mark.parametrize("file", MODULES)
def test_an_error_in_a_users_file_names_factory_file_and_line(file, tmp_path, monkeypatch):
    text, says = MODULES[file]
    (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    name = f"{file.removesuffix('.py')}:make"
    with pytest.raises(InputError) as error:
        models.build(models.get(name), (6,), 3, seed=0)
    message = str(error.value)
    assert message.startswith(f"model {name}: ")
    assert says in message
    assert f"{file}, line " in message
    assert "\n" not in message
