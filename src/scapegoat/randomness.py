"""Randomness derived from what it is for, never from a shared stream.

Every draw names its purpose: `generator(seed, "batch", round, client)`. Two draws with the same name are the same draw,
so a run gives the same numbers whatever the number of workers, the order of runs or the resumes in between.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

BLOCK = 1 << 16
"""Gaussian numbers that are drawn at a time."""


def derive(seed: int, purpose: str, *indices: int) -> int:
    """A 63-bit seed for (seed, purpose, *indices)."""
    name = f"{seed}/{purpose}/" + "/".join(str(int(i)) for i in indices)
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 1


def generator(seed: int, purpose: str, *indices: int) -> torch.Generator:
    """A torch generator for (seed, purpose, *indices)."""
    return torch.Generator().manual_seed(derive(seed, purpose, *indices))


def numpy_generator(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """A NumPy generator for (seed, purpose, *indices)."""
    return np.random.default_rng(derive(seed, purpose, *indices))


def add_gaussian(row: torch.Tensor, sigma: float, source: torch.Generator) -> None:
    """row += sigma · N(0, 1), in place, drawn in blocks so that no second vector of its length exists.

    >>> row = torch.zeros(100_000)
    >>> add_gaussian(row, 2.0, generator(0, "noise", 3))
    >>> round(float(row.std()), 1)
    2.0
    """
    buffer = torch.empty(min(BLOCK, len(row)), device="cpu")
    for start in range(0, len(row), BLOCK):
        part = row[start : start + BLOCK]
        part.add_(buffer[: len(part)].normal_(generator=source).to(row.device), alpha=sigma)
