"""A run says how much memory it needs before its first round, and is refused with the numbers where there is less."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from scapegoat import heap, models
from scapegoat.cli import main
from scapegoat.errors import InputError
from scapegoat.experiments import memory
from scapegoat.experiments.run import prepare, run
from scapegoat.experiments.spec import parse
from scapegoat.experiments.staging import staged
from scapegoat.modelling.flat_model import FlatModel
from tests.experiments.tiny import spec as small


def tiny(**changes: Any) -> dict[str, Any]:
    return {**small(), **changes}


def need(**changes: Any) -> memory.Need:
    return memory.needed(staged(parse(tiny(**changes))))


def part(found: memory.Need, what: str) -> float:
    return sum(p.bytes for p in (*found.kept, *found.passing) if what in p.what)


def test_updates_of_all_picked_clients_are_counted() -> None:
    cast = staged(parse(tiny()))
    assert part(memory.needed(cast), "updates of") == 4 * cast.model.d * cast.setting.picked


def test_inner_products_of_every_two_updates_are_counted() -> None:
    crafted = {"name": "fedpoisonmia", "targets": 40, "mask": 20}
    setting = {"rounds": 1, "fraction": 1.0, "batch_size": 2}
    few, many = (need(federation={**setting, "clients": clients}, attack=crafted) for clients in (4, 50))
    for what in ("over", "crafting"):
        assert part(many, what) - part(few, what) >= 4 * 8 * (50**2 - 4**2)


def test_what_the_process_keeps_when_it_is_freed_is_counted_unless_the_user_has_set_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    kept = need()
    # The rule's blocks are the largest; a pass before it has left its batches and activations.
    small = [p.small for p in kept.passing if "over" not in p.what]
    assert kept.freed == (max(small) if sys.platform.startswith("linux") else 0)
    monkeypatch.setattr(heap, "KEPT", 10)
    assert need().freed <= 10
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert need().freed == 0
    assert need().bytes == kept.bytes - int(kept.freed)


def test_a_memory_of_clients_counts_as_many_as_there_are_and_sketches_as_sketches() -> None:
    d = staged(parse(tiny())).model.d
    whole = part(need(defense={"name": "memory_atm"}), "remembers")
    assert whole == 4 * d * parse(tiny()).federation.clients
    assert part(need(defense={"name": "memory_atm", "remember": 2}), "remembers") == 4 * d * 2
    assert part(need(defense={"name": "memory_atm", "sketch": 16}), "remembers") == whole / d * 16
    assert part(need(defense={"name": "atm"}), "remembers") == 0


def test_a_pipeline_counts_the_rows_that_its_stages_write_out() -> None:
    alone, mixed, clipped = (
        memory.needed(staged(parse(tiny(defense=rule)))).passing
        for rule in ("atm", ["nearest_neighbour_mixing", "atm"], ["norm_clipping", "atm"])
    )
    cast = staged(parse(tiny()))
    written = 4 * cast.model.d * cast.setting.picked
    assert mixed[2].bytes == alone[2].bytes + written
    assert clipped[2].bytes == alone[2].bytes


@pytest.mark.parametrize(
    ("picked", "size", "rounds", "expected"),
    [(8, 8, 100, 0), (20, 30, 100, 40 + 30), (5, 1, 9, 5 + 1), (3, 7, 2, 6 + 7)],
)
def test_updates_that_wait_are_those_that_gather_before_a_step(
    picked: int, size: int, rounds: int, expected: int
) -> None:
    assert memory._waiting(picked, size, rounds) == expected


def test_activations_are_what_autograd_keeps_of_a_record_and_leave_no_trace() -> None:
    module = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.BatchNorm1d(50), nn.Linear(50, 3))
    model = FlatModel(module, (10,), 3)
    before, mode = model.buffers().clone(), module.training
    found = memory.activations(model, torch.randn(300, 10), torch.zeros(300, dtype=torch.int64))
    # The record, the hidden layer before and after the norm (statistics too), the logits' probabilities.
    assert 4 * (10 + 50 + 50 + 3) <= found <= 4 * 2 * (10 + 4 * 50 + 3)
    assert torch.equal(model.buffers(), before)
    assert module.training == mode


def test_a_run_that_does_not_fit_is_refused_with_the_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "available", lambda: 10_000_000)
    with pytest.raises(InputError, match=r"needs \d+\.\d MB of memory beside its data, 10.0 MB are free: .* for "):
        prepare(parse(tiny()))
    settings = [f"--set={key}={json.dumps(value)}" for key, value in tiny().items()]
    with pytest.raises(SystemExit, match="2"):
        main(["run", *settings])
    told = capsys.readouterr().err
    assert "10.0 MB are free" in told
    assert len(told.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("hidden", "needed"), [([10**9], "280.0 GB"), ([10**6, 10**6], "8000.3 GB"), ([10**30], "1000000000.0 GB")]
)
def test_a_model_that_does_not_fit_is_refused_before_it_is_built(
    hidden: list[int], needed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [
        f"--set={key}={json.dumps(value)}" for key, value in tiny(model={"name": "mlp", "hidden": hidden}).items()
    ]
    with pytest.raises(SystemExit, match="2"):
        main(["run", *settings])
    (told,) = capsys.readouterr().err.strip().splitlines()
    assert told.startswith(f"scapegoat: model mlp: its parameters need {needed} of memory, ")
    assert told.endswith(" are free; use smaller layers")


def test_the_parameters_of_a_perceptron_are_known_before_it_is_built() -> None:
    for hidden in ([], [3], [16, 5]):
        model = models.get("mlp", hidden=hidden)
        assert model.parameters((2, 3), 4) == models.build(model, (2, 3), 4, seed=0).d


def test_what_helps_is_said_of_what_is_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 0)
    monkeypatch.setattr(memory, "BLOCKS", 0)
    with pytest.raises(InputError, match="pick fewer clients"):
        run(tiny())
    with pytest.raises(InputError, match=r"defense.sketch or defense.remember"):
        run(tiny(defense={"name": "memory_atm"}))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_the_estimate_is_near_the_peak_of_a_real_process() -> None:
    data = {"name": "hospital", "records": 700, "features": 1000, "classes": 4, "validation": 20}
    setting = {"rounds": 2, "clients": 60, "fraction": 1.0, "batch_size": 4}
    attack = {"name": "passive", "targets": 40, "mask": 20}
    spec = {"data": data, "federation": setting, "attack": attack, "defense": {"name": "memory_atm"}}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fit", json.dumps(spec)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert abs(figures["ratio"] - 1) <= 0.2
    assert abs(figures["ratio_beside_data_and_model"] - 1) <= 0.3
