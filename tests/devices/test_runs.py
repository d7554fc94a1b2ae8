"""Runs, sweeps and commands on a device: what is there, what is not, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from scapegoat import cli, devices
from scapegoat.aggregation import Aggregate, AggregationContext, Rule, Stack
from scapegoat.errors import DeviceMemoryError, InputError
from scapegoat.experiments import RunStore, memory, parse
from scapegoat.experiments.executors import cluster, execute, processes
from scapegoat.experiments.run import run
from tests.devices.strict import on_the_device
from tests.devices.test_whole_rounds import ready, spec, trained
from tests.experiments.tiny import spec as tiny


@pytest.fixture
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_there", lambda kind: False)


def test_a_device_is_part_of_the_hash_only_where_it_is_not_the_processor() -> None:
    plain = parse(tiny())
    assert parse({**tiny(), "device": "cpu"}).hash == plain.hash
    assert parse({**tiny(), "device": "cuda"}).hash != plain.hash
    assert "device" not in plain.canonical()


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CPU", "", "cuda:0000"])
def test_a_name_that_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"^device: "):
        parse({**tiny(), "device": name})


@pytest.mark.usefixtures("no_accelerator")
def test_auto_is_settled_before_a_run_has_a_name(tmp_path: Path) -> None:
    found = run({**tiny(), "device": "auto"}, store=tmp_path)
    assert found.spec.device == "cpu"
    assert found.spec.hash == parse(tiny()).hash


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize(
    ("command", "device"),
    [(["run"], "cuda"), (["run", "--json"], "mps"), (["sweep", "main-c08", "--data", "hospital"], "cuda:3")],
)
def test_a_device_that_is_not_there_is_one_line_and_exit_code_2(
    command: list[str], device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "federation.rounds=1"]
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, "--out", str(tmp_path), "--device", device, *settings])
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert f"device: {device} is not there" in said[0]


@pytest.fixture
def on_strict() -> Iterator[None]:
    # Storage that exists only in Python has no address by which activations could be told apart.
    with on_the_device(), mock.patch.object(memory, "activations", return_value=1000.0):
        yield


def test_a_whole_run_on_the_device_is_kept_and_read_back(tmp_path: Path, on_strict: None) -> None:
    plain = {**spec(), "device": "cuda"}  # what the spec calls it; the strict one answers
    result = run(plain, store=tmp_path)
    again = run(plain, store=tmp_path)
    assert result.summary == again.summary
    assert result.summary["device"] == "strict:0"


def test_a_run_on_the_device_is_resumed_there(on_strict: None) -> None:
    plain = spec(
        defense={"name": "reputation_atm", "sketch": 32},
        attack={"name": "fedpoisonmia", "targets": 16, "mask": 10},
        federation={"schedule": {"name": "async", "tau_max": 2}, "server": {"optimizer": "adam"}},
    )
    straight, first, second = ready(plain), ready(plain), ready(plain)
    first.run_round()
    saved = {name: tensor.cpu() for name, tensor in first.state().items()}
    second.restore(saved)
    assert second.server.parameters.device == first.server.parameters.device
    np.testing.assert_array_equal(trained(second), trained(straight))


def test_on_a_device_sums_are_repeatable_and_in_float32_and_settings_come_back() -> None:
    def settings() -> tuple[bool, ...]:
        backends = torch.backends
        return torch.are_deterministic_algorithms_enabled(), backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32

    before = settings()
    with devices.repeatable("cuda"):
        assert settings() == (True, False, False)
    assert settings() == before
    with devices.repeatable("cpu"):
        assert settings() == before


def test_a_checkpoint_on_the_processor_says_nothing_of_devices() -> None:
    simulation = ready(spec())
    simulation.run_round()
    assert b"on_device" not in bytes(simulation.state()["plain"].numpy())


class Greedy(Rule):
    """Runs out of memory the first time, or always."""

    folder: str = ""
    always: bool = False

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean, if there is room."""
        mark = Path(self.folder) / "tried"
        if self.always or not mark.exists():
            # Only the run that is to fail once leaves the mark: which of two workers comes first must not matter.
            if not self.always:
                mark.write_bytes(b"")
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nSee the documentation")
        return stack.aggregate(stack.mean())


def greedy(folder: Path, always: bool) -> dict[str, Any]:
    name = "tests.devices.test_runs:Greedy"
    return {**tiny(), "defense": {"name": name, "folder": str(folder), "always": always}}


def test_memory_that_runs_out_ends_a_run_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(DeviceMemoryError, match=r"^cpu: memory ran out \(CUDA out of memory\. .* 20\.00 GiB\.\)$"):
        run(greedy(tmp_path, always=True))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_out_of_memory_is_tried_again_alone_and_never_ends_the_sweep(tmp_path: Path, jobs: int) -> None:
    heard: list[tuple[str, str]] = []
    specs = [greedy(tmp_path, always=False), greedy(tmp_path, always=True), tiny(seed=1)]
    names = [parse(s).hash for s in specs]
    outcome = execute(specs, tmp_path / "out", jobs=jobs, on_event=lambda e: heard.append((e.kind, e.name)))
    assert sorted(outcome.summaries) == sorted([names[0], names[2]])
    assert list(outcome.failures) == [names[1]]
    assert "memory ran out" in outcome.failures[names[1]].reason
    assert "\n" not in outcome.failures[names[1]].reason
    retried = [name for kind, name in heard if kind == "retried"]
    assert sorted(retried) == sorted(names[:2])
    # Those that are tried again come after all others.
    last = [name for kind, name in heard if kind == "started"][-2:]
    assert sorted(last) == sorted(names[:2])


@pytest.mark.parametrize(
    ("count", "share", "runs"), [(1, 1.0, 1), (1, 0.25, 4), (2, 0.5, 4), (1, 2.0, 1), (4, 0.3, 12)]
)
def test_as_many_runs_share_accelerators_as_their_share_allows(count: int, share: float, runs: int) -> None:
    assert processes.runs_at_once(count, share) == runs


def test_ray_sets_a_share_of_a_gpu_aside_for_runs_on_one() -> None:
    assert cluster.resources(parse(tiny()), 0.25) == {"num_cpus": 1}
    assert cluster.resources(parse({**tiny(), "device": "cuda"}), 0.25) == {"num_cpus": 1, "num_gpus": 0.25}


@pytest.mark.parametrize("share", [0.0, -1.0, 1000.0])
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: float) -> None:
    with pytest.raises(InputError, match="gpus per run"):
        execute([tiny()], RunStore(tmp_path), gpus_per_run=share)


def test_a_run_that_does_not_fit_on_its_device_is_refused_with_the_numbers(on_strict: None) -> None:
    with (
        mock.patch.object(memory, "free_memory", return_value=5_000_000),
        pytest.raises(InputError, match=r"needs .* of the memory of strict:0 beside its data, 5\.0 MB are free"),
    ):
        run(spec())


def test_records_that_are_too_many_for_the_device_stay_on_the_host(on_strict: None) -> None:
    with mock.patch("scapegoat.data.base.free_memory", return_value=1000):
        simulation = ready(spec())
    assert simulation.cast.benign.dataset.x.device == devices.CPU
    assert simulation.cast.benign.dataset.y.device.type == "strict"
    trained(simulation)
