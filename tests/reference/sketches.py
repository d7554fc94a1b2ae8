"""The sketch in plain loops: every coordinate signed, and added to its place."""

from __future__ import annotations

import torch
from torch import Tensor


def sketched(vector: Tensor, signs: list[int], turns: list[int], width: int) -> Tensor:
    """Coordinate i, with its sign, goes to place (i + the rotation of its block) mod width."""
    out = [0.0] * width
    for i, value in enumerate(vector.double().tolist()):
        out[(i % width + turns[i // width]) % width] += signs[i] * value
    return torch.tensor(out, dtype=torch.float64)
