"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

DEVICE = typer.Option(
    None, "--device", metavar="NAME", help="Where to compute: cpu, cuda, cuda:1, mps, or auto for what there is."
)
GPUS_PER_RUN = typer.Option(
    1.0, "--gpus-per-run", metavar="SHARE", help="Share of an accelerator per run: 0.25 lets four runs share one."
)
PLUGIN = typer.Option(
    [], "--plugin", metavar="MODULE", help="A module of yours that registers components (repeat for several)."
)


def on_device(device: str | None) -> list[str]:
    """The override by which a spec is computed on a device."""
    return [] if device is None else [f"device={device}"]


def refuse_at_once(overrides: Sequence[str], seeds: int | None, jobs: int | None) -> None:
    """Refuse, before the slow imports, overrides that cannot be read, and what would fill the memory."""
    from scapegoat.limits import refuse_many_jobs, refuse_many_seeds
    from scapegoat.yaml_text import read_override

    if jobs is not None:
        refuse_many_jobs("--jobs", jobs)
    if seeds is not None:
        refuse_many_seeds("--seeds", seeds)
    for override in overrides:
        read_override(override)


def with_plugins(plain: Any, modules: Sequence[str]) -> list[str]:
    """The override by which a spec has these plugins beside its own; none where there is nothing to add."""
    if not modules:
        return []
    own = plain.get("plugins") if isinstance(plain, Mapping) else None
    listed = dict.fromkeys([*(own if isinstance(own, list) else []), *modules])
    return [f"plugins=[{', '.join(map(str, listed))}]"]
