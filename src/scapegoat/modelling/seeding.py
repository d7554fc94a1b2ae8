"""Global random streams that a model's code may draw from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from scapegoat.devices import CPU, stream_of


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
def torch_seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """The same for torch's streams alone, the processor's and the device's: all that layers draw from, and fast enough
    for a round."""
    stream, other = torch.default_generator, stream_of(device)
    state = stream.get_state()
    elsewhere = None if other is None else other.get_rng_state()
    stream.manual_seed(seed)
    if other is not None:
        other.manual_seed(seed)
    try:
        yield
    finally:
        stream.set_state(state)
        if other is not None:
            other.set_rng_state(elsewhere)
