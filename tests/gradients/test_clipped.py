"""Clipped sums equal a loop over the records; no record, however hostile, moves a sum by more than the clip."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scapegoat import models
from scapegoat.errors import InputError
from scapegoat.gradients import clipped, clipped_gradients, direct, private, private_gradients
from scapegoat.gradients.layer_gradients import Positions, Slot
from scapegoat.modelling.flat_model import FlatModel
from scapegoat.randomness import generator
from tests.gradients import modules
from tests.reference.gradients import clipped_sums

some = settings(max_examples=25, deadline=None)


def check(
    model: FlatModel, x: Tensor, y: Tensor, sizes: list[int], clip: float, tolerance: float = 1e-5
) -> clipped.ClippedGradients:
    vector = model.initial()
    want, shortened = clipped_sums(model, vector, x, y, sizes, clip)
    out = torch.full((len(sizes), model.d), torch.nan)
    found = clipped_gradients(model, vector, x, y, sizes, clip, out)
    assert float((out - want).norm(dim=1).max()) <= tolerance * clip * max(1, *sizes)
    assert found.shortened == shortened
    return found


def flat(module: nn.Module, x: Tensor) -> tuple[FlatModel, Tensor]:
    return FlatModel(module, tuple(x.shape[1:]), modules.CLASSES, x.dtype), torch.arange(len(x)) % modules.CLASSES


@some
@given(
    st.integers(0, 2**31),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.sampled_from([1e-3, 0.3, 1.0, 100.0]),
    st.sampled_from([1.0, 0.1]),
    st.booleans(),
)
@example(0, [0, 0], 1.0, 1.0, True)
@example(0, [1], 1.0, 1.0, True)
@example(1, [0, 40, 0, 1, 60, 0], 0.3, 0.1, True)
def test_perceptrons(seed: int, sizes: list[int], clip: float, density: float, bias: bool) -> None:
    torch.manual_seed(seed)
    x = torch.randn(sum(sizes), 30) * (torch.rand(sum(sizes), 30) < density)
    layers = nn.Sequential(nn.Linear(30, 8, bias=bias), nn.ReLU(), nn.Linear(8, modules.CLASSES, bias=bias))
    model, y = flat(layers, x)
    check(model, x, y, sizes, clip)


def convolving(*norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), *norm, nn.Tanh(), nn.Flatten(), nn.Linear(4 * 25, 3))


TOKENS = torch.arange(9 * 7).reshape(9, 7) * 5 % 11 // 2  # most records name a token twice
MODULES = {
    "positions, built": (lambda: modules.OverPositions(4, 4), (6, 4)),
    "positions, ghost": (lambda: modules.OverPositions(40, 40), (2, 40)),
    "group norm": (lambda: convolving(nn.GroupNorm(2, 4)), (1, 5, 5)),
    "instance norm": (lambda: convolving(nn.InstanceNorm2d(4, affine=True)), (1, 5, 5)),
    "called twice": (lambda: modules.CalledTwice(5), (5,)),
    "tied": (lambda: modules.Tied(5), (5,)),
    "weight read elsewhere": (lambda: modules.ReadsAnothersWeight(5), (5,)),
    "never called": (lambda: modules.NeverCalled(5), (5,)),
    "own parameters": (lambda: modules.OwnParameters(5), (5,)),
    "positions first": (lambda: modules.PositionsFirst(4), (3, 4)),
    "samples backwards": (lambda: modules.Backwards(5), (5,)),
    "positions in the batch": (lambda: modules.Flattened(5), (3, 5)),
    "in place": (lambda: modules.Overwrites(6), (6,)),
    "mixes in training": (lambda: modules.MixesInTraining(5), (5,)),
    "embedding": (lambda: modules.Words(11, 4, recurrent=False, attention=False), None),
    "recurrent": (lambda: modules.Words(11, 4, attention=False), None),
    "attention": (lambda: modules.Words(11, 4, recurrent=False), None),
}


@pytest.mark.parametrize("clip", [0.05, 0.5, 50.0])
@pytest.mark.parametrize("name", MODULES)
def test_modules_of_every_kind(name: str, clip: float) -> None:
    torch.manual_seed(0)
    make, shape = MODULES[name]
    x = TOKENS if shape is None else torch.randn(9, *shape)
    model, y = flat(make(), x)
    check(model, x, y, [3, 0, 5, 1], clip)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@pytest.mark.parametrize("name", ["group norm", "tied"])
def test_passes_may_cut_clients_anywhere(name: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    make, shape = MODULES[name]
    x = torch.randn(11, *shape)  # type: ignore[misc]
    model, y = flat(make(), x)
    monkeypatch.setattr(clipped, "CONVOLVED_AT_ONCE", at_once)
    monkeypatch.setattr(clipped, "BLOCK_FLOATS", at_once * model.d)
    check(model, x, y, [2, 0, 5, 1, 3], 0.3)


def test_resnet20() -> None:
    torch.manual_seed(0)
    x = torch.rand(5, 3, 16, 16)
    model = models.build(models.registry.parse("resnet20"), (3, 16, 16), 10, seed=0)
    check(model, x, torch.arange(5), [3, 2], 1.0)


HOSTILE = {
    "zeros": 0.0,
    "tiny": 1e-30,
    "huge": 1e12,
    "overflowing": 3e38,
    "NaN": math.nan,
    "infinite": math.inf,
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", ["perceptron", "group norm", "own parameters", "positions, ghost"])
@pytest.mark.parametrize("places", [[1], [0, 1, 2], [5], list(range(9))])
def test_a_hostile_record_moves_a_sum_by_no_more_than_the_clip(name: str, value: float, places: list[int]) -> None:
    """Whatever it makes of its own gradient, the other records count as they do without it."""
    torch.manual_seed(0)
    perceptron = (lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), (5,))
    make, shape = MODULES.get(name, perceptron)
    x = torch.randn(9, *shape)  # type: ignore[misc]
    model, y = flat(make(), x)
    vector, sizes, clip = model.initial(), [3, 1, 5], 0.4
    others = [i for i in range(9) if i not in places]
    left = [sum(i in others for i in range(a, b)) for a, b in [(0, 3), (3, 4), (4, 9)]]
    want, _ = clipped_sums(model, vector, x[others], y[others], left, clip)
    x[places] = value
    out = torch.full((3, model.d), torch.nan)
    found = clipped_gradients(model, vector, x, y, sizes, clip, out)
    assert out.isfinite().all()
    moved = (out - want).norm(dim=1)
    for client in range(3):
        assert float(moved[client]) <= clip * (sizes[client] - left[client]) + 1e-5
    if math.isnan(value):
        assert float(moved.max()) < 1e-5
    assert [math.isnan(loss) for loss in found.losses] == [not row.any() for row in out]


def test_positions_that_cancel_do_not_hide_a_gradient() -> None:
    """Two positions of opposite sign and nearly equal size: a norm from rounded products would be anything."""
    torch.manual_seed(0)
    a, delta = torch.randn(6, 1, 50) * 1e3, torch.randn(6, 1, 60)
    a, delta = torch.cat([a, torch.randn(6, 1, 50) * 1e-2 - a], 1), torch.cat([delta, delta], 1)
    want = torch.einsum("sto,stf->sof", delta.double(), a.double()).square().sum((1, 2))
    piece = Positions(a, delta, Slot(0, (60, 50)), None)
    torch.testing.assert_close(piece.squares(), want, rtol=1e-4, atol=0)


def test_a_gradient_whose_square_overflows_is_clipped_not_set_aside() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4) * 1e22
    model, y = flat(nn.Linear(4, modules.CLASSES), x)
    found = check(model, x, y, [5], 1.0)
    assert found.shortened[0] > 0


def test_a_record_without_a_gradient_changes_nothing() -> None:
    """All logits of the true class are infinitely far ahead: the gradient is exactly zero, and stays so."""
    model, _ = flat(nn.Sequential(nn.Linear(3, 3)), torch.zeros(1, 3))
    vector = torch.zeros(model.d)
    vector[-3] = 1e4
    out = torch.empty(1, model.d)
    found = clipped_gradients(model, vector, torch.ones(4, 3), torch.zeros(4, dtype=torch.int64), [4], 1.0, out)
    assert not out.any()
    assert found == clipped.ClippedGradients([0.0], [0])


def test_each_record_keeps_the_dropout_that_its_norm_was_taken_with() -> None:
    """One record, clipped hard: whatever was dropped, its gradient has the clip's length."""
    torch.manual_seed(0)
    x = torch.randn(20, 6)
    model, y = flat(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 3)), x)
    out = torch.empty(20, model.d)
    clipped_gradients(model, model.initial(), x, y, [1] * 20, 1e-3, out)
    torch.testing.assert_close(out.norm(dim=1), torch.full((20,), 1e-3), rtol=1e-4, atol=0)
    again = torch.empty(20, model.d)
    clipped_gradients(model, model.initial(), x, y, [1] * 20, 1e-3, again)
    assert not torch.equal(out, again)


def test_no_matrix_of_all_records_gradients_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    rows: list[int] = []
    ordinary = direct.rows_and_losses

    def watched(model: FlatModel, x: Tensor, *rest: object) -> object:
        rows.append(len(x))
        return ordinary(model, x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(clipped, "rows_and_losses", watched)
    x = torch.randn(50, 5)
    model, y = flat(modules.Tied(5), x)
    monkeypatch.setattr(clipped, "BLOCK_FLOATS", 4 * model.d)
    clipped_gradients(model, model.initial(), x, y, [25, 25], 1.0, torch.empty(2, model.d))
    assert max(rows) == 4
    rows.clear()
    model, y = flat(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), x)
    clipped_gradients(model, model.initial(), x, y, [25, 25], 1.0, torch.empty(2, model.d))
    assert not rows


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm2d(4), nn.InstanceNorm2d(4, track_running_stats=True), nn.SyncBatchNorm(4)]
)
def test_statistics_of_records_together_are_refused(norm: nn.Module) -> None:
    model, y = flat(convolving(norm), torch.randn(4, 1, 5, 5))
    with pytest.raises(InputError, match=rf"^1 is {type(norm).__name__}, .*use GroupNorm or LayerNorm$"):
        clipped_gradients(model, model.initial(), torch.randn(4, 1, 5, 5), y, [4], 1.0, torch.empty(1, model.d))


class Remembers(nn.Module):
    """Keeps a running mean of its own making."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.head(x)


def test_buffers_that_tell_of_records_are_refused() -> None:
    x = torch.randn(4, 5)
    model, y = flat(Remembers(), x)
    with pytest.raises(InputError, match="buffers change"):
        clipped_gradients(model, model.initial(), x, y, [4], 1.0, torch.empty(1, model.d))


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_a_clip_that_is_none_is_refused(clip: float) -> None:
    x = torch.randn(4, 5)
    model, y = flat(nn.Linear(5, 3), x)
    with pytest.raises(InputError, match=r"^clip is"):
        clipped_gradients(model, model.initial(), x, y, [4], clip, torch.empty(1, model.d))


def noisy(sizes: list[int], seed: int = 0, noise: float = 2.0, scale: float = 1.0) -> Tensor:
    torch.manual_seed(0)
    x = torch.randn(sum(sizes), 300) * scale
    model, y = flat(nn.Linear(300, 100), x)
    out = torch.empty(len(sizes), model.d)
    private_gradients(
        model,
        model.initial(),
        x,
        y,
        sizes,
        clip=0.5,
        noise=noise,
        expected=[4.0] * len(sizes),
        sources=[generator(seed, "dp_sgd", 0, client) for client in range(len(sizes))],
        out=out,
    )
    return out


def test_every_clients_sum_carries_noise_of_its_own_whatever_its_batch() -> None:
    """Standard deviation noise x clip over the expected size, for a full, a small and an empty batch."""
    without = noisy([4, 1, 0], noise=0.0)
    assert float(without[2].abs().max()) == 0
    drawn = noisy([4, 1, 0]) - without
    assert drawn.std(1).tolist() == pytest.approx([2.0 * 0.5 / 4] * 3, rel=0.02)
    assert drawn.mean(1).abs().max() < 4 * 0.25 / math.sqrt(drawn.shape[1])
    assert float(torch.corrcoef(drawn).fill_diagonal_(0).abs().max()) < 0.03
    assert torch.equal(noisy([4, 1, 0]), noisy([4, 1, 0]))
    assert not torch.equal(noisy([4, 1, 0]), noisy([4, 1, 0], seed=1))


def test_sums_are_clipped_and_divided_by_the_expected_size() -> None:
    """Records far above the clip, all alike: the sum of n is n clips long."""
    x, y = torch.full((6, 5), 1e4), torch.zeros(6, dtype=torch.int64)
    model, _ = flat(nn.Linear(5, 3), x)
    out = torch.empty(2, model.d)
    sources = [generator(0, "dp_sgd", 0, client) for client in range(2)]
    start = torch.zeros(model.d)
    private_gradients(model, start, x, y, [4, 2], clip=0.5, noise=0.0, expected=[4, 8], sources=sources, out=out)
    assert out.norm(dim=1).tolist() == pytest.approx([4 * 0.5 / 4, 2 * 0.5 / 8], rel=1e-5)
    divided = torch.empty(2, model.d)
    clipped_gradients(model, start, x, y, [4, 2], 0.5, divided, divisors=[4, 8])
    torch.testing.assert_close(divided, out)


@pytest.mark.parametrize(("noise", "expected"), [(-1.0, 1.0), (math.nan, 1.0), (1.0, 0.0), (1.0, math.inf)])
def test_noise_and_sizes_that_make_no_sense_are_refused(noise: float, expected: float) -> None:
    x = torch.randn(4, 5)
    model, y = flat(nn.Linear(5, 3), x)
    out, sources = torch.empty(1, model.d), [generator(0, "dp_sgd")]
    with pytest.raises(InputError, match="must be"):
        private_gradients(
            model, model.initial(), x, y, [4], clip=1.0, noise=noise, expected=[expected], sources=sources, out=out
        )


def test_the_examples_in_the_docstrings_are_true() -> None:
    for module in (clipped, private):
        found = doctest.testmod(module)
        assert found.attempted >= 5
        assert found.failed == 0
