"""The routes of a run: fixed, or those that were once found to be fastest on this machine.

What was found is kept beside the decoded data sets, once per processor, model and shape of the batches, so that every
run of a spec on one machine takes the same routes, whoever computes it and however often it is resumed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from pathlib import Path
from typing import Any

import torch

from scapegoat.data.files import cache
from scapegoat.devices import CPU
from scapegoat.experiments.route_timing import Choice, timed
from scapegoat.federation.cast import Cast
from scapegoat.files import whole_folder
from scapegoat.kernels.routes import Routes, RoutesBy

log = logging.getLogger("scapegoat.experiments")

_FORMAT = 3
_FILE = "routes.json"

_GENERATION = ("cpu family", "model", "stepping", "CPU implementer", "CPU part")
"""How Linux tells processors of one name apart: Intel's and AMD's by the first three, ARM's by the others."""


def processor() -> str:
    """The processor's name, which one of that name it is, and how much of it torch uses."""
    return f"{_model_name()} ({torch.backends.cpu.get_cpu_capability()})"


def _model_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Virtual machines often say no more than the brand: generations are told apart by numbers."""
    try:
        first = cpuinfo.read_text().split("\n\n")[0]
    except OSError:
        first = ""
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    parts = [said.get("model name") or platform.processor() or platform.machine()]
    parts += [f"{key} {said[key]}" for key in _GENERATION if key in said]
    return ", ".join(parts)


def situation(cast: Cast) -> dict[str, Any]:
    """What the fastest routes depend on."""
    model, setting = cast.model, cast.setting
    made_of = f"{model.module!r} {model.layout} {model.task.name}"
    targets = cast.targets.x
    return {
        "format": _FORMAT,
        "processor": processor(),
        "torch": torch.__version__ + ("" if model.precision == "float32" else f" {model.precision}"),
        "threads": torch.get_num_threads(),
        "precision": model.precision,
        "model": hashlib.sha256(made_of.encode()).hexdigest()[:16],
        "record": [*model.input_shape],
        "filled": round(int(targets.count_nonzero()) / max(targets.numel(), 1), 2),
        "batch": setting.batch_size,
        "clients": setting.picked,
        "trains": f"{cast.benign.local.name} {cast.benign.local.has_routes(model)}",
        "targets": len(cast.targets),
        "mask": len(cast.attacker.mask) if setting.malicious and cast.attacker.attack.per_sample else 0,
    }


def measured(cast: Cast) -> Choice:
    """The fastest routes for this federation: as they were found before, else found now and kept.

    What cannot be kept is not chosen, since the next process might choose otherwise: then the routes are the fixed
    ones, and a warning says so.
    """
    about = situation(cast)
    name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]
    entry = cache.folder() / f"routes-{name}"
    kept = _load(entry, about)
    if kept is not None:
        return kept
    try:
        # Before the timing: where nothing can be kept, it would be in vain.
        with whole_folder(entry, durable=False) as draft:
            fresh = timed(cast)
            written = about | {"routes": fresh.routes.as_dict(), "milliseconds": fresh.milliseconds}
            (draft / _FILE).write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        log.warning("the fastest routes cannot be kept in %s (%s); the fixed ones are taken", cache.folder(), error)
        return Choice()
    # Where another process was first, its choice counts.
    return _load(entry, about) or Choice()


def _load(entry: Path, about: dict[str, Any]) -> Choice | None:
    """What was found before, or None where that is nothing; a damaged entry is removed."""
    if not entry.exists():
        return None
    try:
        found = json.loads((entry / _FILE).read_text(encoding="utf-8"))
        if {key: found[key] for key in about} != about:
            raise ValueError("it is about something else")
        return Choice(Routes.parse(found["routes"]), dict(found["milliseconds"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the kept routes in %s are damaged (%s); they are measured again", entry, error)
        cache.discard(entry)
        return None


def told(by: RoutesBy, routes: Routes, device: torch.device) -> dict[str, Any]:
    """What a summary says of the routes that were taken; what it does not name was left to the rule of thumb.

    On an accelerator there is nothing to choose from, whatever the spec says.
    """
    return {"chosen": by if device == CPU else "fixed", "processor": processor()} | routes.as_dict()
