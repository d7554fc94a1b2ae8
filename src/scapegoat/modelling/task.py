"""What a model is built for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from scapegoat.tasks import Classification, TaskSpec

CLASSES = Classification()
"""What models are trained for unless something else is said."""


@dataclass(frozen=True)
class Task:
    """The shape and type of one record (without the batch), the number of outputs, and what they are trained for."""

    input_shape: tuple[int, ...]
    classes: int
    input_dtype: torch.dtype = torch.float32
    objective: TaskSpec = CLASSES
