"""Protections in a spec: its hash, its errors, its summary, and a run that was stopped."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from scapegoat.accounting import Exposure, record_epsilons
from scapegoat.errors import InputError, Stopped
from scapegoat.experiments import RunStore, parse
from scapegoat.experiments.run import run
from scapegoat.experiments.staging import staged
from scapegoat.protecting import privacy
from scapegoat.protecting.privacy import GaussianMechanism
from tests.experiments import tiny

EVERY = [
    {"name": "weight_decay"},
    {"name": "early_stopping", "patience": 2, "least": 0.2},
    {"name": "dp_sgd", "noise": 0.5},
    {"name": "loss_floor"},
    {"name": "label_smoothing"},
]


def spec(protect: list[Any], rounds: int = 6, **federation: Any) -> dict[str, Any]:
    plain = tiny.spec("fedpoisonmia", "reputation_atm", rounds)
    plain["federation"] |= {"protect": protect, **federation}
    return plain


def test_a_spec_without_protections_has_the_name_that_it_had() -> None:
    assert parse(spec([])).hash == parse(tiny.spec("fedpoisonmia", "reputation_atm", 6)).hash
    assert "protect" not in parse({}).canonical()["federation"]


def test_protections_are_part_of_the_name_in_full() -> None:
    parsed = parse(spec([{"name": "weight_decay", "rate": 0.02}]))
    assert parsed.canonical()["federation"]["protect"] == [{"name": "weight_decay", "rate": 0.02, "decoupled": False}]
    assert parse(parsed.canonical()).hash == parsed.hash
    assert len({parse(spec(p)).hash for p in ([], ["weight_decay"], [{"name": "weight_decay", "rate": 0.02}])}) == 3


@pytest.mark.parametrize(
    ("protect", "complaint"),
    [
        ("weight_decay", r"federation\.protect: 'weight_decay' is not a list"),
        (["weight_decai"], r"federation\.protect\.0\.name: .*did you mean 'weight_decay'"),
        (["dp_sgd", {"name": "weight_decay", "rate": -1}], r"federation\.protect\.1\.rate"),
        (["weight_decay", "weight_decay"], r"federation\.protect\.1\.name: .*twice"),
        (["mixup", "dp_sgd"], r"federation\.protect\.1: no epsilon would hold with mixup"),
        (["dp_sgd", {"name": "early_stopping", "gap": 0.5}], r"federation\.protect\.0: no epsilon .*early_stopping"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(protect: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        parse(spec(protect))
    assert "\n" not in str(caught.value)


def test_stopping_needs_records_of_the_servers_own() -> None:
    plain = spec(["early_stopping"])
    plain["data"] = {**plain["data"], "validation": 0}
    with pytest.raises(InputError, match=r"data\.validation: 0 leaves early_stopping without"):
        parse(plain)


@pytest.mark.parametrize("local", ["gradient", {"name": "epochs", "epochs": 2}])
def test_the_summary_tells_the_epsilon_of_the_steps_that_were_taken(local: Any) -> None:
    plain = spec([{"name": "dp_sgd", "noise": 2.0, "clip": 0.5, "delta": 1e-4}], rounds=3, local=local)
    told = run(plain).summary["privacy"]
    everybody = staged(parse(plain))
    setting, exposures = everybody.setting, {}
    for client, shard in enumerate(everybody.splits.shards):
        rounds = sum(client in setting.pick(everybody.seed, r) for r in range(3))
        steps = 1 if local == "gradient" else 2 * -(-len(shard) // 64)
        exposures[client] = Exposure(rounds * steps, len(shard), 64)
    expected = record_epsilons(exposures, 2.0, 1e-4)
    assert told["epsilon"] == expected.whole > 0
    assert {c["client"]: c["epsilon"] for c in told["per_client"]} == expected.clients
    assert (told["delta"], told["relation"], told["unit"]) == (1e-4, "add or remove one record", "record")


def test_rounds_that_were_not_trained_cost_no_epsilon() -> None:
    noise = {"name": "dp_sgd", "noise": 2.0}
    stopped = run(spec([noise, {"name": "early_stopping", "patience": 1, "least": 100.0}], rounds=6)).summary
    assert (stopped["trained_rounds"], stopped["rounds"]) == (2, 6)
    assert stopped["privacy"]["epsilon"] == run(spec([noise], rounds=2)).summary["privacy"]["epsilon"]
    assert stopped["privacy"]["epsilon"] < run(spec([noise], rounds=6)).summary["privacy"]["epsilon"]


def test_without_noise_there_is_no_epsilon() -> None:
    told = GaussianMechanism(1.0, 0.0, "fixed", 1e-5).spent({0: Exposure(3, 10, 2)})
    assert (told["epsilon"], told["relation"]) == (None, "replace one record")


def test_a_large_federation_tells_of_the_clients_that_can_be_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy, "LISTED_CLIENTS", 3)
    exposures = {0: Exposure(5, 100, 10), 1: Exposure(4, 50, 10), 2: Exposure(4, 90, 10), 3: Exposure(1, 60, 10)}
    mechanism = GaussianMechanism(1.0, 1.0, "poisson", 1e-5)
    told = mechanism.spent(exposures)
    assert [c["client"] for c in told["per_client"]] == [0, 1]
    assert told["epsilon"] == record_epsilons(exposures, 1.0, 1e-5).whole


@pytest.mark.parametrize("local", ["gradient", "epochs"])
@pytest.mark.parametrize("schedule", ["sync", {"name": "async", "tau_max": 2, "buffer": 3}])
def test_a_run_that_was_stopped_goes_on_with_the_same_numbers(tmp_path: Path, local: str, schedule: Any) -> None:
    plain = spec(EVERY, rounds=7, local=local, schedule=schedule)
    if schedule != "sync":
        plain["defense"] = "fedavg"
    run(plain, store=tmp_path / "whole")
    for last in range(7):

        def stop(record: Any, rounds: int, last: int = last) -> None:
            if record.round == last:
                raise KeyboardInterrupt

        with contextlib.suppress(Stopped):
            run(plain, store=tmp_path / "stopped", progress=stop)
    run(plain, store=tmp_path / "stopped")
    tiny.assert_same_numbers(RunStore(tmp_path / "whole"), RunStore(tmp_path / "stopped"))


@pytest.mark.parametrize("attack", ["passive", "gradient_ascent", "agrevader", "adaptive", "fedpoisonmia", "blend"])
def test_every_attack_runs_beside_protections(attack: str) -> None:
    plain = tiny.spec(attack, "atm", rounds=1)
    plain["federation"] |= {"protect": EVERY}
    assert run(plain).summary["protections"] == [p["name"] for p in EVERY]
