"""Weight decay in a strategy is that of the simulated server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord

from scapegoat.errors import InputError, OptionError
from scapegoat.integrations import flower
from tests.experiments import tiny
from tests.federation.small import federation
from tests.integrations.flower_fakes import FakeGrid, answering, record, reply

DECAYS = [{"rate": 0.5}, {"rate": 0.5, "decoupled": True}]


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize(
    ("local", "server", "replies"),
    [
        ("epochs", {"optimizer": "sgd", "lr": 1.0}, "arrays"),
        ("gradient", {"optimizer": "adam", "lr": 0.01}, "updates"),
        ("gradient", {"optimizer": "momentum", "lr": 0.1}, "updates"),
    ],
)
def test_a_strategy_decays_and_cools_as_the_simulated_server_does(
    local: str, server: Any, replies: Any, decay: Any
) -> None:
    options: dict[str, Any] = {"malicious": 0, "fraction": 1.0, "rounds": 4, "local": local, "server": server}
    protect = [{"name": "weight_decay", **decay}, {"name": "cooling", "last": 0.1}]
    simulation = federation(rule="reputation_atm", protect=protect, **options)
    strategy = flower.ReputationAngularTrimmedMean(
        trim=1,
        weight_decay=decay,
        cooling={"last": 0.1},
        replies=replies,
        server_optimizer=server,
        clients={n: n for n in range(8)},
    )
    strategy.server.rounds = 4  # as `start` is told
    given = simulation.server.parameters.clone()
    grid = FakeGrid({node: answering(dict) for node in range(8)})
    less = [federation(rule="reputation_atm", protect=protect[i:][:1], **options) for i in (0, 1)]
    for round_ in range(4):
        updates = torch.empty(8, len(given))
        simulation.cast.benign.updates(round_, list(range(8)), [given] * 8, updates)
        strategy.configure_train(round_ + 1, record({"w": given.numpy()}), ConfigRecord(), grid)
        sent = updates if replies == "updates" else given - updates
        arrays, _ = strategy.aggregate_train(round_ + 1, [reply(c, {"w": sent[c].numpy()}) for c in range(8)])
        given = torch.from_numpy(np.array(arrays["w"].numpy()))
        simulation.run_round()
        for other in less:
            other.run_round()
    torch.testing.assert_close(given, simulation.server.parameters, rtol=1e-3, atol=1e-4)
    for other in less:
        assert not torch.allclose(given, other.server.parameters, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("decay", [0.25, {"rate": 0.25, "decoupled": True}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_averaged_weights_lose_that_share_of_what_was_sent_out(dtype: Any, decay: Any) -> None:
    """mean of the replies - rate · the arrays that were sent out; statistics do not decay."""
    sent = {"w": np.array([4.0, -8.0], dtype=dtype), "bn.running_mean": np.array([4.0], dtype=np.float32)}
    strategy = flower.Mean(weight_decay=decay)
    strategy.configure_train(1, record(sent), ConfigRecord(), FakeGrid({n: answering(dict) for n in (1, 2)}))
    replies = [reply(n, {**sent, "w": np.array([4.0 + n, -8.0], dtype=dtype)}) for n in (1, 2)]
    arrays, _ = strategy.aggregate_train(1, replies)
    assert isinstance(arrays, ArrayRecord)
    assert arrays["w"].numpy().tolist() == [5.5 - 1.0, -8.0 + 2.0]
    assert arrays["w"].numpy().dtype == dtype
    assert arrays["bn.running_mean"].numpy().tolist() == [4.0]


@pytest.mark.parametrize("decay", [-0.1, 2.0, "much", {"rat": 0.1}])
def test_a_decay_that_cannot_be_is_refused_in_one_line(decay: Any) -> None:
    with pytest.raises(InputError, match="weight_decay") as caught:
        flower.Mean(weight_decay=decay)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cooling", [{"last": 2.0}, {"lats": 0.1}, 0.5])
def test_a_cooling_that_cannot_be_is_refused_in_one_line(cooling: Any) -> None:
    with pytest.raises(InputError, match="cooling") as caught:
        flower.Mean(cooling=cooling)
    assert "\n" not in str(caught.value)


def test_a_live_federation_refuses_what_would_end_it() -> None:
    from scapegoat.integrations.flower.live.spec_app import live_spec

    plain = tiny.spec()
    plain["federation"] |= {"protect": ["weight_decay"]}
    assert live_spec(plain).federation.protect
    plain["federation"] |= {"protect": ["early_stopping"]}
    with pytest.raises(OptionError, match="ends training"):
        live_spec(plain)
