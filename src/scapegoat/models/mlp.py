"""A fully connected classifier, for tabular records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from pydantic import Field, PositiveInt
from torch import nn

from scapegoat.modelling.flat_model import ModelSpec, register


@register("mlp")
class MLP(ModelSpec):
    """Linear layers with ReLU between them; inputs are flattened."""

    hidden: tuple[PositiveInt, ...] = Field(default=(512, 128))
    """Units per hidden layer."""

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module for one input shape and number of classes."""
        layers: list[nn.Module] = [] if len(input_shape) == 1 else [nn.Flatten()]
        for before, after in self._layers(input_shape, classes):
            layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers[:-1])

    def parameters(self, input_shape: tuple[int, ...], classes: int) -> int:
        """How many parameters the module will have."""
        return sum((before + 1) * after for before, after in self._layers(input_shape, classes))

    def _layers(self, input_shape: tuple[int, ...], classes: int) -> Iterator[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        return itertools.pairwise((math.prod(input_shape), *self.hidden, classes))
