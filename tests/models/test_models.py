import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scapegoat import models
from scapegoat.errors import InputError


def make_tiny(input_shape, classes, width=4):
    return nn.Sequential(nn.Linear(input_shape[0], width), nn.Tanh(), nn.Linear(width, classes))


def make_wrong_width(input_shape, classes):
    return nn.Linear(input_shape[0], classes + 1)


def make_that_raises():
    raise RuntimeError("no weights here")


def make_nothing():
    return 42


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ({"name": "mlp", "hidden": [16, 8]}, (20,)),
        ({"name": "mlp", "hidden": []}, (3, 4, 4)),
        ("resnet20", (3, 32, 32)),
        ("resnet20", (1, 48, 48)),
        ({"name": "resnet20", "norm": "batch"}, (3, 96, 96)),
        (f"{__name__}:make_tiny", (6,)),
    ],
)
def test_flat_gradient_equals_autograd_on_the_module(spec, shape):
    model = models.build(models.registry.parse(spec), shape, 5, seed=1)
    vector = model.initial()
    x, y = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 4])
    flat, loss = model.gradient(vector, x, y)
    model.module.train()
    # The same memory layout: another one rounds differently, and a rounding can cross a ReLU's kink.
    expected_loss = F.cross_entropy(model.module(model.prepare(x)), y)
    expected = torch.autograd.grad(expected_loss, model.parameters)
    assert loss == pytest.approx(float(expected_loss.detach()), rel=1e-5)
    torch.testing.assert_close(flat, torch.cat([g.reshape(-1) for g in expected]), rtol=1e-4, atol=1e-6)


def test_the_seed_decides_the_initial_parameters_and_leaves_the_global_stream_alone():
    spec = models.get("mlp")
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, again, other = (models.build(spec, (7,), 3, seed=s).initial() for s in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_resnet20_has_the_published_size():
    model = models.build(models.get("resnet20"), (3, 32, 32), 10, seed=0)
    assert 265_000 < model.d < 275_000


@pytest.mark.parametrize("density", [1.0, 0.05])
def test_logits_follow_the_vector_and_do_not_depend_on_the_batch(density, monkeypatch):
    model = models.build(models.get("mlp", hidden=(256,)), (300,), 3, seed=0)
    x = torch.rand(200, 300) * (torch.rand(200, 300) < density)
    with torch.no_grad():
        model.point_at(model.initial())
        want = model.module(x)
    torch.testing.assert_close(model.logits(model.initial(), x), want, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr("scapegoat.modelling.flat_model.EVALUATED_AT_ONCE", 70)
    torch.testing.assert_close(model.logits(model.initial(), x), want, rtol=1e-4, atol=1e-5)
    assert torch.equal(model.logits(torch.zeros(model.d), x), torch.zeros(200, 3))
    assert not any("forward" in vars(module) for module in model.module.modules())


def test_records_changed_in_place_are_scored_as_they_are_now():
    model = models.build(models.get("mlp", hidden=(256,)), (300,), 3, seed=0)
    x = (torch.rand(200, 300) < 0.05).float()
    before = model.logits(model.initial(), x)
    x.copy_(x.roll(1, 0))
    torch.testing.assert_close(model.logits(model.initial(), x), before.roll(1, 0))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (f"{__name__}:make_wrong_width", "logits of shape (2, 3)"),
        (f"{__name__}:make_that_raises", "no weights here"),
        (f"{__name__}:make_nothing", "not a torch.nn.Module"),
        (f"{__name__}:absent", "has no 'absent'"),
        ("no_such_package.models:make", "cannot import no_such_package"),
        ("resnet20", "takes images"),
        ({"name": f"{__name__}:make_tiny", "options": {"depth": 3}}, "depth"),
    ],
)
def test_a_model_that_cannot_work_is_refused_in_one_line(spec, says):
    with pytest.raises(InputError) as error:
        models.build(models.registry.parse(spec), (6,), 3, seed=0)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_frozen_parameters_stay_out_of_the_vector():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    assert models.FlatModel(module, (4,), 3).d == 15


def test_factory_options_reach_the_factory():
    spec = models.registry.parse({"name": f"{__name__}:make_tiny", "options": {"width": 9}})
    assert models.build(spec, (6,), 3, seed=0).d == 6 * 9 + 9 + 9 * 3 + 3
