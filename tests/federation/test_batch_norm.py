import pytest
import torch
from torch import nn

from scapegoat.crafting.contract import Samples
from scapegoat.errors import InputError
from scapegoat.federation.local import Epochs, Gradient
from scapegoat.models import FlatModel


def over_records():
    torch.manual_seed(0)
    return FlatModel(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)), (6,), 3)


def over_pixels():
    torch.manual_seed(0)
    return FlatModel(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3)), (1, 4, 4), 3)


def without():
    torch.manual_seed(0)
    return FlatModel(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), (6,), 3)


def train(model, records, batch_size=4, epochs=2):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(records, *model.input_shape, generator=generator)
    y = torch.randint(3, (records,), generator=generator)
    out = torch.empty(model.d)
    loss = Epochs(epochs=epochs).alone(model, model.initial(), Samples(x, y), batch_size, seed=5, out=out)
    return out, loss


class Steps:
    """Counts the sizes of the batches that a model was stepped on."""

    def __init__(self, model, monkeypatch):
        self.sizes = []
        gradient = model.gradient

        def counted(vector, x, y, out=None, **options):
            answer = gradient(vector, x, y, out, **options)
            self.sizes.append(len(y))
            return answer

        monkeypatch.setattr(model, "gradient", counted)


def test_a_last_batch_of_one_record_sits_out_where_batch_norm_cannot_normalise_it(monkeypatch):
    model = over_records()
    steps = Steps(model, monkeypatch)
    update, loss = train(model, records=9)
    assert steps.sizes == [4, 4, 4, 4]
    assert bool(update.isfinite().all())
    assert bool(update.any())
    assert loss > 0


@pytest.mark.parametrize("build", [without, over_pixels])
def test_a_last_batch_of_one_record_counts_wherever_the_model_takes_it(build, monkeypatch):
    model = build()
    steps = Steps(model, monkeypatch)
    train(model, records=9)
    assert steps.sizes == [4, 4, 1, 4, 4, 1]


def test_a_record_that_sits_out_leaves_no_trace_in_the_statistics():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 3)
    )
    model = FlatModel(module, (1, 4, 4), 3)
    before = model.buffers()
    update, loss = train(model, records=1)
    assert torch.equal(model.buffers(), before)
    assert not bool(update.any())
    assert loss > 0


def test_a_client_with_one_record_sends_no_change():
    update, loss = train(over_records(), records=1)
    assert not bool(update.any())
    assert 0 < loss < 10


def test_batches_of_one_record_are_refused_for_batch_norm_over_records():
    with pytest.raises(InputError, match=r"federation\.batch_size: 1 .*2 or more"):
        train(over_records(), records=5, batch_size=1)
    train(over_pixels(), records=5, batch_size=1)


def gradient(model, records, batch_size=4):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(records, *model.input_shape, generator=generator)
    y = torch.randint(3, (records,), generator=generator)
    out = torch.full((model.d,), torch.nan)
    return out, Gradient().alone(model, model.initial(), Samples(x, y), batch_size, seed=5, out=out)


def test_a_client_with_one_record_sends_a_gradient_of_zero_where_batch_norm_cannot_normalise_it():
    model = over_records()
    before = model.buffers()
    update, loss = gradient(model, records=1)
    assert torch.equal(update, torch.zeros(model.d))
    assert torch.equal(model.buffers(), before)
    assert 0 < loss < 10


@pytest.mark.parametrize(("build", "records"), [(over_records, 4), (over_pixels, 1), (without, 1)])
def test_a_batch_that_the_model_takes_has_a_gradient(build, records):
    update, _ = gradient(build(), records)
    assert bool(update.isfinite().all())
    assert bool(update.any())


def test_gradients_of_one_record_are_refused_for_batch_norm_over_records():
    with pytest.raises(InputError, match=r"federation\.batch_size: 1 .*2 or more"):
        gradient(over_records(), records=1, batch_size=1)
