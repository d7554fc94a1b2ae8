"""A checkpoint is believed to the last bit, or the run starts again and says so."""

from __future__ import annotations

import logging
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from scapegoat.experiments import RunStore, checkpoints, parse
from scapegoat.experiments.run import run
from tests.experiments.tiny import spec

SPEC = spec("fedpoisonmia", "atm", rounds=4)


@pytest.fixture
def stopped(tmp_path: Path) -> RunStore:
    """A run that was stopped after its second round."""

    def stop(record: Any, rounds: int) -> None:
        if record.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(SPEC, store=tmp_path, progress=stop)
    return RunStore(tmp_path)


@pytest.fixture
def name() -> str:
    return parse(SPEC).hash


def rounds_computed(store: RunStore) -> list[int]:
    seen: list[int] = []
    result = run(SPEC, store=store, progress=lambda record, rounds: seen.append(record.round))
    assert result.summary["membership"] == run(SPEC).summary["membership"]
    return seen


def test_a_whole_checkpoint_is_gone_on_from(stopped: RunStore) -> None:
    assert rounds_computed(stopped) == [2, 3]


def test_any_flipped_bit_is_noticed(stopped: RunStore, name: str, caplog: pytest.LogCaptureFixture) -> None:
    path = stopped.part(name) / "checkpoint.safetensors"
    data, draw = path.read_bytes(), random.Random(0)
    header = 8 + int.from_bytes(data[:8], "little")
    whole = stopped.load_checkpoint(name)
    assert whole is not None
    for turn in range(200):
        place = draw.randrange(header) if turn % 3 == 0 else draw.randrange(header, len(data))
        bit = 1 << draw.randrange(8)
        path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        found = stopped.load_checkpoint(name)
        if found is not None:  # only where the meaning is the same, as in white space of the header
            assert place < header
            assert found.keys() == whole.keys()
            assert all(torch.equal(found[key], whole[key]) for key in whole)
    assert "the run starts again" in caplog.text


def test_a_flipped_bit_of_a_parameter_makes_the_run_start_again(
    stopped: RunStore, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = stopped.part(name) / "checkpoint.safetensors"
    data = bytearray(path.read_bytes())
    data[-50] ^= 0x40
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert rounds_computed(stopped) == [0, 1, 2, 3]
    assert "does not match its digest; the run starts again" in caplog.text.replace(")", "")


@pytest.mark.parametrize("resealed", [True, False])
@pytest.mark.parametrize("change", ["optimizer/second", "history/", "margins", "plain", "seconds", "nan", "negative"])
def test_a_checkpoint_without_something_or_with_impossible_seconds_is_not_believed(
    stopped: RunStore, name: str, change: str, resealed: bool
) -> None:
    path = stopped.part(name) / "checkpoint.safetensors"
    state = load_file(path)
    if change in ("nan", "negative"):
        state["seconds"] = torch.tensor(math.nan if change == "nan" else -1.0, dtype=torch.float64)
    else:
        state = {key: value for key, value in state.items() if not key.startswith(change)}
    if resealed:
        stopped.save_checkpoint(name, state)
    else:
        save_file(state, path)
    assert rounds_computed(stopped) == [0, 1, 2, 3]


def test_the_checkpoint_of_another_run_or_version_is_not_believed(
    stopped: RunStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = stopped.load_checkpoint(name)
    assert state is not None
    checkpoints.save(stopped.part(name) / "checkpoint.safetensors", "0" * 64, state)
    assert stopped.load_checkpoint(name) is None
    stopped.save_checkpoint(name, state)
    assert stopped.load_checkpoint(name) is not None
    monkeypatch.setattr(checkpoints, "VERSION", "1000")
    assert stopped.load_checkpoint(name) is None
