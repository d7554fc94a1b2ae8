"""One federation over several processes of a real local Ray cluster gives the numbers of one process, bit for bit."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import scapegoat
from scapegoat import models
from scapegoat.cli import main
from scapegoat.errors import InputError
from scapegoat.experiments.ray_cluster import connected, import_ray
from scapegoat.experiments.run import prepare, run
from scapegoat.experiments.shards import crew as crews
from scapegoat.experiments.shards import gathering
from scapegoat.experiments.spec import parse
from scapegoat.federation import RoundRecord
from tests.experiments.tiny import spec

pytestmark = pytest.mark.ray


def wider(**parts: Any) -> dict[str, Any]:
    """A spec whose updates have several chunks of columns: d is 9,556, not a multiple of anything."""
    plain = spec(rounds=3) | parts
    plain["model"] = {"name": "mlp", "hidden": [240, 8]}
    plain["federation"] = {"rounds": 3, "clients": 9, "batch_size": 16} | parts.get("federation", {})
    return plain


def attack(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "targets": 40, "mask": 20, **options}


SPECS = {
    "fedavg": wider(attack=attack("passive"), defense={"name": "fedavg"}),
    "atm, an attack that sees all": wider(attack=attack("fedpoisonmia"), defense={"name": "atm"}),
    "median, epochs": wider(
        attack=attack("passive"), defense={"name": "median"}, federation={"local": {"name": "epochs"}}
    ),
    "sketches, stale": wider(
        attack=attack("agrevader"),
        defense={"name": "reputation_atm", "sketch": 1000},
        federation={"schedule": {"name": "async", "tau_max": 2}},
    ),
    "whole memory, a buffer": wider(
        attack=attack("passive"),
        defense={"name": "memory_atm"},
        federation={"schedule": {"name": "async", "tau_max": 2, "buffer": 5}},
    ),
    "running statistics": wider(attack=attack("passive"), defense={"name": "krum"})
    | {"model": {"name": "tests.experiments.test_shards:normalised"}},
    "a server that looks": wider(
        attack=attack("gradient_ascent", knowledge="partial"),
        defense=[{"name": "norm_clipping"}, {"name": "trimmed_mean"}],
        evaluation={"server_view": True},
    ),
}


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    pytest.importorskip("ray")
    ray = import_ray()
    with connected(ray, "local", 3):
        yield ray


@pytest.fixture(autouse=True)
def waiting(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes wait for the next test: each takes seconds to start."""

    class Reused(crews.Crew):
        def _start(self) -> Any:
            return idle.pop() if idle else super()._start()

        def dismiss(self) -> None:
            idle.extend(shard for shard in self.shards if self._lives(shard))

    monkeypatch.setattr(crews, "Crew", Reused)


idle: list[Any] = []


def same(one: scapegoat.Result, other: scapegoat.Result) -> None:
    assert one.rounds.equals(other.rounds)
    assert one.targets.equals(other.targets)
    assert {**one.summary, "seconds": 0} == {**other.summary, "seconds": 0}


@pytest.mark.parametrize("name", SPECS)
def test_shards_give_the_numbers_of_one_process(name: str) -> None:
    same(run(SPECS[name], shards=3), run(SPECS[name]))


def test_shards_take_the_routes_that_this_machine_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAPEGOAT_CACHE", str(tmp_path))
    plain = SPECS["atm, an attack that sees all"] | {"routes": "measured"}
    prepare(parse(plain))
    (kept,) = tmp_path.glob("routes-*/routes.json")
    # Not what is fastest here, but other sums than by the rules of thumb.
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"routes": {"passes": "autograd"}}))
    alone = run(plain)
    assert alone.summary["routes"]["passes"] == "autograd"
    assert not alone.targets.equals(run(SPECS["atm, an attack that sees all"]).targets)
    same(run(plain, shards=3), alone)


def test_updates_that_memory_has_no_room_for_lie_in_files_and_the_numbers_stay(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gathering, "available", lambda: 1000)
    plain = SPECS["fedavg"]
    same(run(plain, shards=2), run(plain))
    assert "they are kept in files" in caplog.text


def test_a_killed_shard_is_replaced_within_the_round_and_the_numbers_stay(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One is killed while it trains, another when the rule asks for sketches."""
    plain = SPECS["sketches, stale"]
    killed: list[int] = []

    class Stormy(crews.Crew):
        def _kill(self, place: int) -> None:
            killed.append(self.ray.get(self.shards[place].pid.remote()))
            os.kill(killed[-1], signal.SIGKILL)

        def complete(self, work: Any) -> Any:
            if work.__name__ == "_fill" and not killed:
                self._kill(1)
            return super().complete(work)

        def ask(self, calls: Any) -> Any:
            if calls.__qualname__.startswith("ShardedRows.chain") and len(killed) == 1:
                self._kill(0)
            return super().ask(calls)

    monkeypatch.setattr(crews, "Crew", Stormy)
    with caplog.at_level(logging.WARNING):
        stormy = run(plain, shards=3)
    assert len(killed) == 2
    assert caplog.text.count("1 of 3 shards died and were replaced") == 2
    same(stormy, run(plain))


def test_a_stopped_run_goes_on_in_shards_and_back(tmp_path: Path) -> None:
    plain = SPECS["sketches, stale"]

    def stop(record: RoundRecord, rounds: int) -> None:
        if record.round < 2:
            raise KeyboardInterrupt

    for shards in (2, None):
        with pytest.raises(KeyboardInterrupt):
            run(plain, store=tmp_path, shards=shards, progress=stop)
    same(run(plain, store=tmp_path, shards=3), run(plain))


def test_gathering_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    run(SPECS["atm, an attack that sees all"], shards=2)
    assert caplog.text.count("of updates are brought to one process, for an attack that sees the honest updates") == 1


class Dropping(nn.Sequential):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(nn.Linear(inputs, 8), nn.Dropout(0.5), nn.Linear(8, classes))


def normalised(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(input_shape[0], 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, classes))


def dropping(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Dropping(input_shape[0], classes)


@pytest.mark.parametrize(
    ("shards", "changes", "says"),
    [
        (0, {}, "--shards: 0 is not allowed"),
        (64, {}, "64 shards of 1 threads on a cluster of 3 cores"),
        (2, {"model": {"name": "tests.experiments.test_shards:dropping"}}, "draws random numbers in training"),
        (2, {"federation": {"updates": "bfloat16"}}, "bfloat16 is not for a federation in shards"),
    ],
)
def test_what_cannot_be_spread_is_refused_in_one_line(shards: int, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(wider(**changes) | {"model": changes.get("model", "mlp")}, shards=shards)


def test_a_model_that_lives_in_this_process_is_refused() -> None:
    held = models.given(nn.Sequential(nn.Flatten(), nn.Linear(30, 4)))
    with pytest.raises(InputError, match="handed over as an object"):
        run(wider() | {"model": held}, shards=2)
    assert torch.get_num_threads() >= 1


def test_the_command_takes_shards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(SPECS["fedavg"]), encoding="utf-8")
    with pytest.raises(SystemExit) as done:
        main(["run", str(file), "--shards", "2", "--json"])
    assert not done.value.code
    told = json.loads(capsys.readouterr().out)
    assert {**told, "seconds": 0} == {**run(SPECS["fedavg"]).summary, "seconds": 0}
    with pytest.raises(SystemExit) as refused:
        main(["run", str(file), "--ray", "local"])
    assert refused.value.code == 2
    assert "--shards K" in capsys.readouterr().err
