"""What a model is built for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from scapegoat.tasks import Classification, TaskSpec

CLASSES = Classification()
"""What models are trained for unless something else is said."""


@dataclass(frozen=True)
class Task:
    """What a model is built for.

    `input_shape` and `input_dtype` are those of one record (without the batch), `classes` is the number of outputs, and
    `objective` what they are trained for.

    Examples
    --------
    >>> Task(input_shape=(3, 32, 32), classes=10).input_dtype
    torch.float32
    """

    input_shape: tuple[int, ...]
    classes: int
    input_dtype: torch.dtype = torch.float32
    objective: TaskSpec = CLASSES
