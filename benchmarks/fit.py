"""The memory that a run was estimated to need beside what it took, each run in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.timing import log
from scapegoat.errors import RunError
from scapegoat.experiments import memory
from scapegoat.experiments import run as runs
from scapegoat.federation.cast import Cast

WITHIN = 0.2
"""How far off the estimate of the peak may be."""

_WIDE = {"name": "hospital", "records": 4000, "features": 6170, "classes": 100}
_LARGE = {"name": "mlp", "hidden": [4000, 128]}


def _spec(
    defense: Any = "fedavg", attack: Any = "passive", data: Any = None, model: Any = None, **federation: Any
) -> Any:
    setting = {"rounds": 3, "fraction": 1.0, **federation}
    spec = {"data": data or _WIDE, "federation": setting, "attack": attack, "defense": defense}
    return spec if model is None else {**spec, "model": model}


def specs(images: Path) -> dict[str, Any]:
    """Runs of many kinds; the model has 3.2 million parameters unless the name says otherwise."""
    pictures = {"name": f"npz:{images}"}
    few = {"targets": 100, "mask": 100}
    stale = {"name": "async", "tau_max": 5, "buffer": 30}
    small = {"name": "hospital"}
    return {
        "the default spec, 0.3M": _spec("fedavg", "fedpoisonmia", small, fraction=0.8),
        "fedavg, 10 clients": _spec(clients=10),
        "atm, 50 clients": _spec("atm", clients=50),
        "median, 50 clients": _spec("median", clients=50),
        "memory_atm, 30 clients": _spec("memory_atm", clients=30),
        "reputation_atm in sketches, 30 clients": _spec({"name": "reputation_atm", "sketch": 4096}, clients=30),
        "mixing and atm, 30 clients": _spec(["nearest_neighbour_mixing", "atm"], clients=30),
        "deepsight, 12 clients": _spec("deepsight", clients=12),
        "local epochs with Adam": _spec(clients=10, local={"name": "epochs", "optimizer": "adam", "lr": 0.001}),
        "stale clients, buffer of 30": _spec(clients=20, schedule=stale, rounds=6),
        "fedpoisonmia, multi_krum, 20 clients": _spec("multi_krum", "fedpoisonmia", clients=20),
        "agrevader, 12 clients of 25M": _spec("fedavg", "agrevader", model=_LARGE, clients=12),
        "atm in bfloat16, 100 clients of 25M": _spec(
            "atm", model=_LARGE, clients=100, updates="bfloat16", rounds=1, batch_size=16
        ),
        "fedpoisonmia, median in bfloat16, 30 clients": _spec(
            "median", "fedpoisonmia", clients=30, updates="bfloat16", rounds=2
        ),
        "median in bfloat16, stale clients, buffer of 30": _spec(
            "median", clients=20, updates="bfloat16", schedule=stale, rounds=4
        ),
        "resnet20, passive": _spec("fedavg", {"name": "passive", **few}, pictures, "resnet20", rounds=2, clients=8),
        "resnet20, fedpoisonmia": _spec(
            "atm", {"name": "fedpoisonmia", **few}, pictures, "resnet20", rounds=2, clients=8
        ),
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Estimate and peak of every spec, in bytes, and what was needed beside data and model."""
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder, "images.npz")
        draw = np.random.default_rng(0)
        np.savez(images, x=draw.integers(0, 256, (2000, 3, 32, 32), dtype=np.uint8), y=draw.integers(0, 10, 2000))
        chosen = specs(images)
        cases = {name: _apart(name, spec) for name, spec in list(chosen.items())[: 2 if quick else None]}
    worst = max(abs(case["ratio"] - 1) for case in cases.values())
    return {"cases": cases, "worst": worst, "bound": WITHIN, "holds": worst <= WITHIN}


def _apart(name: str, spec: Any) -> dict[str, float]:
    log.info("memory of %s", name)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fit", json.dumps(spec)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RunError(f"{name}: {done.stderr.strip()[-500:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(spec: Any) -> dict[str, float]:
    """Run a spec in this process, saving a checkpoint after every round, and hold its peak against the estimate."""
    seen: dict[str, float] = {}
    process = psutil.Process()
    usual = memory.refuse_what_does_not_fit

    def noting(cast: Cast, server_view: bool = False, *, elsewhere: bool = False) -> memory.Need:
        need = usual(cast, server_view, elsewhere=elsewhere)
        seen["before"], seen["needed"] = process.memory_info().rss, need.bytes
        return need

    runs.refuse_what_does_not_fit = noting  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        runs.run(spec, store=folder, checkpoint_seconds=0)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = 1024 * int(next(line for line in status if line.startswith("VmHWM")).split()[1])
    estimate = seen["before"] + seen["needed"]
    beside = seen["needed"] / max(peak - seen["before"], 1)
    return {"estimate": estimate, "peak": peak, "ratio": estimate / peak, "ratio_beside_data_and_model": beside}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
