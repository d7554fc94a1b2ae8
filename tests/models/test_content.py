"""A changed model is another run; the same model is the same run."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from scapegoat import models
from scapegoat.errors import InputError
from scapegoat.models import Task

TASK = Task((6,), 3)

NET = """
import numpy as np
import torch
from torch import nn
from helper import squash

WIDTH = 4


class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first, self.last = nn.Linear(features, WIDTH), nn.Linear(WIDTH, classes)
        self.scale = nn.Parameter(torch.tensor(np.random.rand(WIDTH), dtype=torch.float32))
        self.squash = squash

    def extra_repr(self):
        return f"squash={self.squash}"

    def forward(self, x):
        return self.last(self.squash(self.first(x)) * self.scale)


def make(input_shape, classes):
    return Net(input_shape[0], classes)
"""
HELPER = "import torch\n\n\ndef squash(x):\n    return torch.tanh(x)\n"

CONTENT = """
import sys, torch
from scapegoat import models
torch.manual_seed(int(sys.argv[1]))
print(models.get("net:make").pinned(models.Task((6,), 3)).content)
"""


def write(folder):
    (folder / "net.py").write_text(NET)
    (folder / "helper.py").write_text(HELPER)
    return folder


@pytest.fixture(scope="module")
def unedited(tmp_path_factory):
    return content(write(tmp_path_factory.mktemp("unedited")), state=1)


def content(folder, state=1):
    """As a process of its own finds it."""
    command = [sys.executable, "-B", "-c", CONTENT, str(state)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


def test_the_content_is_the_same_in_every_process_and_folder_whatever_the_random_state(unedited, tmp_path):
    assert content(write(tmp_path), state=2) == unedited


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("net.py", "WIDTH = 4", "WIDTH = 400"),
        ("net.py", "* self.scale", "- self.scale"),
        ("helper.py", "tanh", "relu"),
    ],
)
def test_an_edit_of_the_file_or_of_one_that_it_imports_is_another_content(unedited, tmp_path, file, before, after):
    path = write(tmp_path) / file
    path.write_text(path.read_text().replace(before, after))
    assert content(tmp_path) != unedited


def make_closure(width):
    def make(input_shape, classes):
        return nn.Sequential(nn.Linear(input_shape[0], width), nn.Tanh(), nn.Linear(width, classes))

    return make


class Powered(nn.Module):
    def __init__(self, power):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.power = power

    def forward(self, x):
        return self.layer(x**self.power)


def test_closures_that_differ_in_what_they_close_over_are_different_models():
    four, wide, again = (models.given(make_closure(width)) for width in (4, 400, 4))
    assert [models.build(spec, (6,), 3, seed=0).d for spec in (four, wide)] == [6 * 4 + 4 + 15, 6 * 400 + 400 + 1203]
    assert four.pinned(TASK) == again.pinned(TASK) != wide.pinned(TASK)
    assert models.given(lambda: Powered(1)).pinned(TASK) != models.given(lambda: Powered(2)).pinned(TASK)


def test_a_module_is_told_apart_by_its_parameters():
    module = Powered(1)
    first = models.given(module).pinned(TASK)
    assert models.given(module).pinned(TASK) == first
    with torch.no_grad():
        module.layer.bias += 1
    assert models.given(module).pinned(TASK) != first
    with pytest.raises(InputError, match="model Powered: has changed since the run was planned"):
        models.build(first, (6,), 3, seed=0)


def test_a_pinned_model_is_built_only_if_it_is_still_that_model():
    spec = models.registry.parse({"name": f"{__name__}:Powered", "options": {"power": 2}}).pinned(TASK)
    again = models.registry.parse(json.loads(json.dumps(spec.canonical())))
    assert models.build(again, (6,), 3, seed=5).d == 21
    other = again.model_copy(update={"options": {"power": 2.5}, "content": "0" * 64})
    with pytest.raises(InputError, match=r"test_content:Powered: has changed since .* model\.content"):
        models.build(other, (6,), 3, seed=5)


def test_a_factory_that_never_makes_the_same_model_twice_is_refused():
    def make():
        module = Powered(1)
        nn.init.constant_(module.layer.bias, float(np.random.default_rng().random()))
        return module

    with pytest.raises(InputError, match="gives two models"):
        models.given(make).pinned(TASK)


def test_a_file_edited_after_its_import_is_refused_until_it_is_imported_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "edited_later.py").write_text("from torch import nn\n\n\ndef make():\n    return nn.Linear(6, 3)\n")
    spec = models.get("edited_later:make")
    first = spec.pinned(TASK)
    (tmp_path / "edited_later.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Linear(6, 3, False)\n"
    )
    with pytest.raises(InputError, match=r"edited_later\.py: has changed since this process imported it"):
        spec.pinned(TASK)
    del sys.modules["edited_later"]
    assert spec.pinned(TASK) != first


def test_models_of_the_package_have_no_content():
    for name in ("mlp", "resnet20"):
        spec = models.get(name)
        assert not spec.unpinned
        assert spec.pinned(TASK) is spec
        assert "content" not in spec.canonical()
