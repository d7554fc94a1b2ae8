"""Rounds on an accelerator beside the same rounds on the processor: how fast, and how far apart.

Where there is one the figures are also written to a file that can be sent to us: nobody has measured any yet.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import log
from scapegoat import aggregation, devices
from scapegoat.experiments.routes import processor
from scapegoat.experiments.run import prepare
from scapegoat.experiments.spec import parse
from scapegoat.federation.simulation import Simulation

ROUNDS = 6
"""Rounds of each federation; the first is not timed."""

_WIDE = {"name": "hospital", "records": 4000, "features": 6170, "classes": 100}
_FEW = {"targets": 100, "mask": 100}


def specs(images: Path, quick: bool) -> dict[str, Any]:
    """Federations of the kinds that audits have: small and wide tables, images, passive and active attacks."""
    pictures = {"name": f"npz:{images}"}
    cases: dict[str, Any] = {
        "mlp_0.3M, passive": {"attack": "passive"},
        "mlp_0.3M, fedpoisonmia, atm": {"attack": "fedpoisonmia", "defense": "atm"},
    }
    if not quick:
        cases |= {
            "mlp_3.2M, passive": {"data": _WIDE, "attack": "passive"},
            "mlp_3.2M, 40 clients, fedpoisonmia, reputation_atm": {
                "data": _WIDE,
                "attack": "fedpoisonmia",
                "defense": "reputation_atm",
                "federation": {"clients": 50},
            },
            "resnet20, passive": {"data": pictures, "model": "resnet20", "attack": {"name": "passive", **_FEW}},
            "resnet20, fedpoisonmia, atm": {
                "data": pictures,
                "model": "resnet20",
                "attack": {"name": "fedpoisonmia", **_FEW},
                "defense": "atm",
            },
        }
    return cases


def run(quick: bool = False, device: str = "auto", folder: Path | None = None) -> dict[str, Any]:
    """Seconds per round on both, and how far apart the targets' margins are; written to a file unless it is the CPU."""
    there = devices.find(device)
    about = {"device": devices.described(there), "torch": torch.__version__, "processor": processor()}
    with tempfile.TemporaryDirectory() as temporary:
        images = Path(temporary, "images.npz")
        draw = np.random.default_rng(0)
        np.savez(images, x=draw.integers(0, 256, (2000, 3, 32, 32), dtype=np.uint8), y=draw.integers(0, 10, 2000))
        cases = {name: _case(name, spec, there) for name, spec in specs(images, quick).items()}
    figures = about | {"rounds": cases, "rules": _rules(there, 1 << (18 if quick else 21))}
    if there != devices.CPU:
        path = (folder or Path.cwd()) / f"bench-{there.type}.json"
        path.write_text(json.dumps(figures, indent=2) + "\n")
        log.info("the figures are in %s; send them to us if you like, nobody has measured such a device yet", path)
    return figures


def _case(name: str, spec: Any, there: torch.device) -> dict[str, Any]:
    kind = "cpu" if there == devices.CPU else str(there)
    ways = {"cpu": {}, "device": {"device": kind}, "device in bfloat16": {"device": kind, "precision": "bfloat16"}}
    figures: dict[str, Any] = {}
    margins: dict[str, np.ndarray] = {}
    for way, extra in ways.items():
        log.info("%s, %s", name, way)
        federation = {"rounds": ROUNDS, **spec.get("federation", {})}
        simulation = prepare(parse({**spec, **extra, "federation": federation}))
        figures[f"{way}: seconds per round"] = _seconds(simulation)
        margins[way] = simulation.margins
        if way != "cpu":
            apart = np.abs(margins[way] - margins["cpu"]).max(1)
            scale = float(np.abs(margins["cpu"]).max())
            figures[f"{way}: margins apart, first round"] = float(apart[0] / scale)
            figures[f"{way}: margins apart, last round"] = float(apart[-1] / scale)
    return figures


def _seconds(simulation: Simulation) -> float:
    device = simulation.model.device
    seconds = []
    while not simulation.done:
        started = time.perf_counter()
        simulation.run_round()
        _wait(device)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def _wait(device: torch.device) -> None:
    if device.type in ("cuda", "mps"):
        torch.get_device_module(device).synchronize()


def _rules(there: torch.device, d: int) -> dict[str, dict[str, float]]:
    """Seconds of some rules over 50 updates, on the CPU and on the device."""
    updates = torch.randn(50, d, generator=torch.Generator().manual_seed(0))
    found: dict[str, dict[str, float]] = {}
    for name in ("fedavg", "median", "atm", "multi_krum", "top_k"):
        for where, device in (("cpu", devices.CPU), ("device", there)):
            rows, rule, seconds = updates.to(device), aggregation.get(name), []
            for _ in range(4):
                started = time.perf_counter()
                rule(rows)
                _wait(device)
                seconds.append(time.perf_counter() - started)
            found.setdefault(name, {})[where] = statistics.median(seconds[1:])
    return found
