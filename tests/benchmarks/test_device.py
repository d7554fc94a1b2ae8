"""The benchmark of devices: on an accelerator its figures become a file; on the processor they are printed alone."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from benchmarks import device
from benchmarks.__main__ import main
from tests.devices.strict import on_the_device

SMALL = {
    "data": {"name": "hospital", "records": 500, "features": 40, "classes": 4, "validation": 20},
    "model": {"name": "mlp", "hidden": [16]},
    "attack": {"name": "passive", "targets": 16, "mask": 10},
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "specs", lambda images, quick: {"small": SMALL})
    monkeypatch.setattr(device, "_rules", lambda there, d: {})


@pytest.mark.usefixtures("small")
def test_on_the_processor_rounds_are_held_against_themselves(tmp_path: Path) -> None:
    figures = device.run(device="cpu", folder=tmp_path)["rounds"]["small"]
    assert figures["device: margins apart, last round"] == 0
    assert 0 < figures["device in bfloat16: margins apart, first round"] < 0.1
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small")
def test_on_an_accelerator_the_figures_are_written_to_a_file(tmp_path: Path) -> None:
    with on_the_device(), mock.patch.object(device, "_case", return_value={"device: seconds per round": 0.1}):
        figures = device.run(folder=tmp_path)
    assert json.loads((tmp_path / "bench-strict.json").read_text()) == figures
    assert figures["device"] == "strict:0"


def test_a_device_for_another_subject_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["round", "--device", "cuda"]) == 2
    assert "only for the subject device" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch("scapegoat.devices._there", return_value=False):
        assert main(["device", "--device", "cuda"]) == 2
    assert "cuda is not there" in capsys.readouterr().err
