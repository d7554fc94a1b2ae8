"""Weights of classes or labels in a loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from scapegoat.errors import OptionError

Weights = Literal["balanced"] | tuple[Annotated[float, Field(gt=0, le=1e6)], ...] | None
"""None: all alike; a weight each; or balanced by how often each occurs."""


def weights_of(stated: Weights, counts: Tensor, what: str) -> Tensor | None:
    """The weights [k] that are meant, given how often each of k classes occurs.

    Balanced, a class weighs in inverse proportion to its share: N / (k n_c), so that records weigh 1 on average.
    """
    if stated is None:
        return None
    if stated == "balanced":
        total = float(counts.sum())
        return (total / (len(counts) * counts.clamp_min(1).double())).float()
    given: Sequence[float] = stated
    if len(given) != len(counts):
        raise OptionError(
            "task.class_weights", f"{len(given)} weights for {len(counts)} {what}; one for each is expected"
        )
    if not all(math.isfinite(weight) for weight in given):
        raise OptionError("task.class_weights", "finite numbers are expected")
    return torch.tensor(given, dtype=torch.float32)
