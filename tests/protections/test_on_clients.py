"""What honest clients do in each step of their training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scapegoat.attacks import Attack, AttackerView, Crafted
from scapegoat.errors import InputError
from scapegoat.federation.simulation import Simulation
from scapegoat.randomness import derive, numpy_generator
from tests.federation.small import federation
from tests.reference.protections import clipped_mean, floored_gradient, mixed_gradient, smoothed_gradient

BATCH = 8


def sent(simulation: Simulation, round_: int = 0, client: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A client's gradient in a round, and the records that it was taken on."""
    out = torch.empty(1, simulation.model.d)
    simulation.cast.benign.updates(round_, [client], [simulation.server.parameters], out)
    rows = simulation.cast.benign.batch(round_, client)
    return out[0], simulation.cast.dataset.inputs(rows), simulation.cast.dataset.y[rows]


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [None, {"name": "resnet20"}])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
@pytest.mark.parametrize("clip", [0.01, 1.0, 1e6])
def test_dp_sgd_without_noise_sends_the_mean_of_clipped_gradients(model: Any, sampling: str, clip: float) -> None:
    shape = (12,) if model is None else (3, 16, 16)
    protect = [{"name": "dp_sgd", "clip": clip, "noise": 0.0, "sampling": sampling}]
    simulation = federation(protect=protect, model=model, shape=shape)
    update, x, y = sent(simulation)
    expected = clipped_mean(simulation.model, simulation.server.parameters, x, y, clip, BATCH)
    # Twenty layers in float32 against float64: a ReLU may fall on the other side.
    assert float((update - expected).norm()) <= (1e-5 if model is None else 0.02) * float(expected.norm())
    assert sampling == "poisson" or len(y) == BATCH


def test_poisson_batches_vary_in_size_and_fixed_ones_do_not() -> None:
    sizes = {}
    for sampling in ("poisson", "fixed"):
        benign = federation(protect=[{"name": "dp_sgd", "sampling": sampling}]).cast.benign
        sizes[sampling] = [len(benign.batch(round_, 0)) for round_ in range(200)]
    assert set(sizes["fixed"]) == {BATCH}
    assert len(set(sizes["poisson"])) > 5
    assert abs(np.mean(sizes["poisson"]) - BATCH) < 1


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_the_noise_has_the_size_that_the_accounting_assumes(noise: float) -> None:
    """Standard deviation noise · clip on the sum, another draw for each client and round."""
    clip, draws = 0.3, []
    silent = federation(
        protect=[{"name": "dp_sgd", "clip": clip, "noise": 0.0}], model={"name": "mlp", "hidden": [200]}
    )
    noisy = federation(
        protect=[{"name": "dp_sgd", "clip": clip, "noise": noise}], model={"name": "mlp", "hidden": [200]}
    )
    for round_, client in [(0, 0), (0, 1), (1, 0)]:
        draws.append((sent(noisy, round_, client)[0] - sent(silent, round_, client)[0]) * BATCH)
        assert float(draws[-1].std()) == pytest.approx(noise * clip, rel=0.1)
        assert abs(float(draws[-1].mean())) < 5 * noise * clip / len(draws[-1]) ** 0.5
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert abs(float(torch.corrcoef(torch.stack([draws[one], draws[other]]))[0, 1])) < 0.1


def test_every_local_step_is_clipped_and_gets_noise_of_its_own() -> None:
    """A client of one step per epoch: the distance that it goes is bounded by clip, and noise adds up over steps."""

    def gone(epochs: int, noise: float) -> Tensor:
        simulation = federation(
            local={"name": "epochs", "epochs": epochs, "lr": 0.5},
            batch_size=1000,
            protect=[{"name": "dp_sgd", "clip": 0.01, "noise": noise, "sampling": "fixed"}],
            model={"name": "mlp", "hidden": [200]},
        )
        out = torch.empty(1, simulation.model.d)
        simulation.cast.benign.updates(0, [0], [simulation.server.parameters], out)
        return out[0]

    records = len(federation().cast.benign.shards[0])
    for epochs in (1, 4):
        assert float(gone(epochs, 0.0).norm()) <= epochs * 0.5 * 0.01 * (1 + 1e-4)
        spread = float((gone(epochs, 10.0) - gone(epochs, 0.0)).std())
        assert spread == pytest.approx(epochs**0.5 * 0.5 * 10.0 * 0.01 / records, rel=0.15)


def test_under_noise_local_batches_are_drawn_independently() -> None:
    """Without noise every record is met once per epoch; what noise is worth is known for independent draws."""
    local = {"name": "epochs", "epochs": 2}
    plain, noisy = federation(local=local), federation(local=local, protect=["dp_sgd"])
    size = len(plain.cast.benign.shards[0])
    orders = torch.cat(list(plain.cast.benign.local._batches(size, BATCH, 5)))
    assert torch.equal(orders.bincount(minlength=size), torch.full((size,), 2))
    batches = list(noisy.cast.benign.local._batches(size, BATCH, 5))
    assert len(batches) == noisy.cast.benign.local.steps(size, BATCH) == 2 * -(-size // BATCH)
    assert not torch.equal(torch.cat(batches).bincount(minlength=size), torch.full((size,), 2))


def test_an_empty_batch_sends_noise_and_a_loss() -> None:
    simulation = federation(batch_size=1, protect=[{"name": "dp_sgd", "noise": 1.0}])
    empty = next(r for r in range(50) if not len(simulation.cast.benign.batch(r, 0)))
    out = torch.empty(1, simulation.model.d)
    loss, _ = simulation.cast.benign.updates(empty, [0], [simulation.server.parameters], out)
    assert loss > 0
    assert float(out.std()) == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
@pytest.mark.parametrize("batch_size", [1, BATCH])
def test_clients_that_share_a_pass_send_what_each_would_alone(sampling: str, batch_size: int) -> None:
    """Noise and empty batches included: a client's update depends on nobody else's records."""
    simulation = federation(batch_size=batch_size, protect=[{"name": "dp_sgd", "noise": 1.0, "sampling": sampling}])
    benign, start = simulation.cast.benign, simulation.server.parameters
    assert benign.local.shares_passes(simulation.model)
    clients = [4, 1, 3, 0]
    together, alone = torch.empty(2, len(clients), simulation.model.d)
    loss, _ = benign.updates(7, clients, [start] * len(clients), together)
    losses = [benign.updates(7, [c], [start], alone[i : i + 1])[0] for i, c in enumerate(clients)]
    close(together, alone)
    assert float(loss) == pytest.approx(sum(map(float, losses)) / len(clients))


def test_clients_whose_protections_choose_examples_or_records_pass_alone() -> None:
    for beside in ({"name": "loss_floor", "floor": 0.1}, {"name": "label_smoothing", "share": 0.1}):
        simulation = federation(protect=[{"name": "dp_sgd"}, beside])
        assert not simulation.cast.benign.local.shares_passes(simulation.model)


@settings(max_examples=15, deadline=None)
@given(floor=st.floats(0, 3), client=st.integers(0, 5))
def test_records_below_the_floor_have_no_gradient(floor: float, client: int) -> None:
    simulation = federation(protect=[{"name": "loss_floor", "floor": floor}])
    update, x, y = sent(simulation, client=client)
    close(update, floored_gradient(simulation.model, simulation.server.parameters, x, y, floor))


def test_a_floor_that_some_records_pass_and_others_do_not_is_told_apart_from_none() -> None:
    floor = 1.386  # about ln 4: what a fresh model of four classes loses
    plain, floored = federation(), federation(protect=[{"name": "loss_floor", "floor": floor}])
    update = sent(floored)[0]
    assert float(update.norm()) > 0
    assert not torch.allclose(update, sent(plain)[0])


@settings(max_examples=10, deadline=None)
@given(share=st.floats(0, 0.99))
def test_label_smoothing_is_pytorchs(share: float) -> None:
    simulation = federation(protect=[{"name": "label_smoothing", "share": share}])
    update, x, y = sent(simulation)
    close(update, smoothed_gradient(simulation.model, simulation.server.parameters, x, y, share))


def test_mixup_mixes_inputs_and_losses_by_the_same_share() -> None:
    simulation = federation(protect=[{"name": "mixup", "alpha": 1.0}])
    update, x, y = sent(simulation, round_=3, client=2)
    seed = derive(derive(simulation.seed, "batch", 3, 2), "examples", 0, 0)
    source = numpy_generator(seed, "mixup")
    share, other = float(source.beta(1.0, 1.0)), torch.from_numpy(source.permutation(len(y)))
    assert 0.05 < share < 0.95, "this draw tells nothing"
    close(update, mixed_gradient(simulation.model, simulation.server.parameters, x, y, share, other))


def test_clipping_is_of_what_the_other_protections_left() -> None:
    protect = [
        {"name": "loss_floor", "floor": 1.386},
        {"name": "dp_sgd", "clip": 0.05, "noise": 0.0},
        {"name": "label_smoothing", "share": 0.3},
    ]
    simulation = federation(protect=protect)
    update, x, y = sent(simulation)
    soft = 0.7 * torch.nn.functional.one_hot(y, 4).float() + 0.3 / 4
    model, start = simulation.model, simulation.server.parameters
    total = torch.zeros(model.d)
    for i in range(len(y)):
        gradient, loss = model.gradient(start, x[i : i + 1], soft[i : i + 1])
        if loss >= 1.386:
            total += gradient * min(1.0, 0.05 / float(gradient.norm()))
    assert float(total.norm()) > 0
    close(update, total / BATCH)


class Shown(Attack):
    """Keeps what its clients would honestly send, and sends a vector of its own."""

    def craft(self, view: AttackerView) -> Crafted:
        honest.append(view.honest())
        return Crafted(torch.full((view.senders, len(view.parameters)), 7.0))


honest: list[Tensor] = []


def test_hostile_clients_protect_their_honest_updates_and_not_what_they_craft() -> None:
    honest.clear()
    attack = Shown(targets=30, mask=20)
    for clip in (1e-3, 1e6):
        simulation = federation(attack=attack, fraction=1.0, protect=[{"name": "dp_sgd", "clip": clip, "noise": 0.0}])
        record = simulation.run_round()
        assert record.norm[-1] == pytest.approx(7.0 * simulation.model.d**0.5)
    clipped, unclipped = (rows.norm(dim=1) for rows in honest)
    assert bool((clipped < 3e-3).all())
    assert bool((unclipped > 0.01).all())


def test_a_model_whose_records_have_no_gradient_of_their_own_is_refused_before_the_first_round() -> None:
    with pytest.raises(InputError, match="BatchNorm"):
        federation(model={"name": "resnet20", "norm": "batch"}, shape=(3, 16, 16), protect=[{"name": "dp_sgd"}])


@pytest.mark.parametrize("protect", [["label_smoothing"], ["mixup"], ["loss_floor"]])
@pytest.mark.parametrize("local", ["gradient", "epochs"])
def test_batch_norm_takes_the_protections_that_it_can(protect: list[str], local: str) -> None:
    simulation = federation(
        model={"name": "resnet20", "norm": "batch"},
        shape=(3, 16, 16),
        protect=protect,
        local=local,
        clients=6,
        malicious=1,
        fraction=0.3,
        batch_size=64,
    )
    record = simulation.run_round()
    assert record.loss is not None
    assert np.isfinite(record.loss)


def test_the_servers_root_update_has_no_noise() -> None:
    plain, noisy = federation(), federation(protect=[{"name": "dp_sgd", "noise": 50.0}])
    assert torch.equal(plain.server.root_update(0), noisy.server.root_update(0))
