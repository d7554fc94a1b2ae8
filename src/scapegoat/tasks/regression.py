"""A number, or several, per record."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Self

import numpy as np
import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from scapegoat.devices import host
from scapegoat.registry import added
from scapegoat.tasking.contract import Prepared, TaskSpec, register, within_unit

GROUPS = 5
"""Ranges of the values, with as many records each, that targets and clients' shares are drawn by."""


@register("regression")
class Regression(TaskSpec):
    """Numbers, an output each, under the squared error, the mean over a record's numbers.

    A wrong target is `spread` standard deviations away, up or down by a coin. The margin is how much nearer the output
    is to the truth than to the nearest wrong target: positive where the error is below half a spread.
    """

    labels = "numbers"
    metric = "R²"

    standardize: bool = added(True)
    """Targets get mean 0 and variance 1 (each number of its own), as the model's outputs then have."""
    spread: Annotated[float, Field(gt=0, le=100)] = added(1.0)
    """How far away a wrong target is, in standard deviations of the targets."""

    _scale: Tensor | None = PrivateAttr(default=None)
    """Standard deviations [k] of the targets as the model sees them."""

    def fitted(self, y: Tensor, width: int) -> Self:
        """With the spread of the targets."""
        other = self.model_copy()
        other._scale = torch.ones(width) if self.standardize else _moments(y, width)[1].float()
        return other

    def prepared(self, y: Tensor, width: int) -> Prepared:
        """Floats [n, k], standardised unless told otherwise; groups are ranges of the first number."""
        y = y.to(torch.float64).reshape(len(y), width)
        rank = torch.argsort(torch.argsort(y[:, 0], stable=True), stable=True)
        strata = (rank * GROUPS) // max(len(y), 1)
        if not self.standardize:
            return Prepared(y.float(), strata, GROUPS)
        mean, deviation = _moments(y, width)
        shown = "" if width > 1 else f", of mean {float(mean[0]):.4g} and standard deviation {float(deviation[0]):.4g},"
        note = (
            f"the targets{shown} were brought to mean 0 and variance 1 (task.standardize=false leaves them as they are)"
        )
        return Prepared(((y - mean) / deviation).float(), strata, GROUPS, (note,))

    @property
    def _away(self) -> Tensor:
        """How far away a wrong target is, number by number [k]."""
        assert self._scale is not None
        return self._scale * self.spread

    def wrong(self, y: Tensor, width: int, rng: np.random.Generator) -> Tensor:
        """A spread up or down, by a coin per number."""
        signs = torch.from_numpy(np.where(rng.random(y.shape) < 0.5, -1.0, 1.0)).float()
        return y + signs * self._away

    def rivals(self, y: Tensor, width: int) -> Iterator[Tensor]:
        """A spread up, and a spread down."""
        yield y + self._away
        yield y - self._away

    def usual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The mean squared error of a record's numbers."""
        return (self.shaped(outputs) - y).square().mean(1)

    def at_outputs(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Twice the residual, over the numbers per record."""
        if self.loss is not None or outputs.shape != y.shape:
            return super().at_outputs(outputs, y)
        residual = outputs - y
        return residual.square().mean(1), residual * (2 / y.shape[1])

    def usual_margins(self, outputs: Tensor, y: Tensor) -> Tensor:
        """spread² - 2 · spread · |residual|: the squared error of the nearest wrong target, less that of the truth."""
        assert self._scale is not None
        residual = ((outputs - y) / self._scale).square().mean(1).sqrt()
        return self.spread * (self.spread - 2 * residual)

    def score(self, outputs: Tensor, y: Tensor) -> float:
        """The share of the targets' variance that the outputs explain; 0 where they are worse than the mean."""
        outputs = host(self.shaped(outputs)).double()
        y = host(y).double()
        spread = (y - y.mean(0)).square().mean()
        explained = 1 - float((outputs - y).square().mean() / spread) if float(spread) > 0 else 0.0
        return max(0.0, explained) if math.isfinite(explained) else 0.0

    def baseline(self, y: Tensor) -> float:
        """Of the mean."""
        return 0.0

    def expected(self, records: int, outputs: int) -> str:
        """A number each."""
        shape = f"{(records, outputs)}{f' or {(records,)}' if outputs == 1 else ''}"
        return f"outputs of shape {shape} are expected (a number for each of the {outputs} targets)"

    def squashed(self, outputs: Tensor) -> str | None:
        """A model that cannot reach the targets."""
        if self.loss is not None or not self.standardize or not within_unit(outputs):
            return None
        return (
            "its outputs lie in 0..1, and the targets are standardised: leave the last Sigmoid out, or, if the targets "
            "in the data lie in 0..1, set task.standardize=false"
        )


def _moments(y: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [k]; what is constant has a deviation of 1."""
    y = y.to(torch.float64).reshape(len(y), width)
    mean, deviation = y.mean(0), y.std(0, correction=0)
    return mean, torch.where(deviation > 1e-12 * (1 + mean.abs()), deviation, torch.ones_like(deviation))
