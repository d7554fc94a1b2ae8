"""How large a sweep or an audit may be: beyond that somebody slipped, or means harm. Checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from scapegoat.errors import InputError, shown

MOST_CELLS = 10_000
MOST_RUNS = 100_000
MOST_JOBS = 1_024


def refuse_many_cells(what: str, sizes: Iterable[int]) -> None:
    """Refuse a grid whose lists, of these lengths, come to too many cells."""
    cells = math.prod(sizes)
    if cells > MOST_CELLS:
        count = f"{cells:,}" if cells < 10**15 else "over 10^15"
        raise InputError(f"{what}: {count} cells are too many (allowed: up to {MOST_CELLS:,})")


def refuse_many_seeds(what: str, seeds: int, cells: int = 1) -> None:
    """Refuse a number of seeds below 1, or one that comes to too many runs of the cells."""
    most = MOST_RUNS // max(cells, 1)
    if not 1 <= seeds <= most:
        raise InputError(
            f"{what}: {shown(seeds)} is not allowed, at least 1 is needed, and at most {most:,} "
            f"({cells:,} cells, up to {MOST_RUNS:,} runs)"
        )


def refuse_many_jobs(what: str, jobs: int) -> None:
    """Refuse a number of workers below 1, or one that no machine has."""
    if not 1 <= jobs <= MOST_JOBS:
        raise InputError(f"{what}: {shown(jobs)} is not allowed, at least 1 is needed, and at most {MOST_JOBS:,}")
