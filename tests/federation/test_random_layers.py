"""Models that draw random numbers while they train: a run is what its seed makes it."""

import random

import torch
from torch import nn

from tests.federation.small import federation


def make_dropping(input_shape, classes):
    return nn.Sequential(nn.Linear(*input_shape, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, classes))


DROPPING = {"name": f"{__name__}:make_dropping"}


def parameters_after(rounds, **options):
    simulation = federation(model=DROPPING, attack="fedpoisonmia", **options)
    for _ in range(rounds):
        simulation.run_round()
    return simulation


def test_dropout_draws_the_same_whatever_was_drawn_before():
    torch.manual_seed(1)
    one = parameters_after(3).server.parameters
    torch.manual_seed(2)
    torch.rand(7)
    assert torch.equal(one, parameters_after(3).server.parameters)


def test_dropout_draws_the_same_after_a_resume():
    whole = parameters_after(4)
    first = parameters_after(2)
    state = first.state()
    resumed = federation(model=DROPPING, attack="fedpoisonmia")
    resumed.restore(state)
    torch.rand(5)
    resumed.run_round()
    resumed.run_round()
    assert torch.equal(whole.server.parameters, resumed.server.parameters)


def test_each_round_drops_other_units_and_the_callers_streams_go_on_as_if_nothing_was_drawn():
    simulation = federation(model=DROPPING)
    before = torch.random.get_rng_state(), random.getstate()
    drawn = []
    simulation.model.module[2].register_forward_hook(
        lambda module, args, out: drawn.append((out == 0) & (args[0] != 0))
    )
    simulation.run_round()
    first = len(drawn)
    simulation.run_round()
    assert not torch.equal(drawn[0], drawn[first])
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == random.getstate()
