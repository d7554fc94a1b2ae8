"""Global random streams that a model's code may draw from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch's, NumPy's and Python's streams start from `seed`; outside, they go on as if nothing was drawn."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(legacy)  # noqa: NPY002
            random.setstate(python)


@contextmanager
def torch_seeded(seed: int) -> Iterator[None]:
    """The same for torch's stream on the processor alone: all that layers draw from, and fast enough for a round."""
    stream = torch.default_generator
    state = stream.get_state()
    stream.manual_seed(seed)
    try:
        yield
    finally:
        stream.set_state(state)
