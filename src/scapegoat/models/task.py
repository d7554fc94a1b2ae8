"""What a model is built for."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Task:
    """The shape and type of one record (without the batch), and the number of classes."""

    input_shape: tuple[int, ...]
    classes: int
    input_dtype: torch.dtype = torch.float32
