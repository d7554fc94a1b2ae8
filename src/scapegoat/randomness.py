"""Randomness derived from what it is for, never from a shared stream.

Every draw names its purpose: `generator(seed, "batch", round, client)`. Two draws with the same name are the same draw,
so a run gives the same numbers whatever the number of workers, the order of runs or the resumes in between.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


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
