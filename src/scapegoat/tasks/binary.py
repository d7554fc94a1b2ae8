"""Yes or no per record, told by one logit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PrivateAttr
from torch import Tensor

from scapegoat.devices import host
from scapegoat.registry import added
from scapegoat.tasking.contract import Prepared, TaskSpec, expect_width, register, sigmoid_twice
from scapegoat.tasking.weighing import Weights, weights_of


@register("binary")
class Binary(TaskSpec):
    """Two classes, one logit, under binary cross-entropy: labels 0 and 1, -1 and 1, or two texts.

    A wrong target is the other class. The margin is the logit, with its sign turned where the label is 0.
    """

    labels = "classes"

    class_weights: Weights = added(None)
    """Weights of class 0 and class 1 in the loss: two numbers, or `balanced`."""

    _weights: Tensor | None = PrivateAttr(default=None)

    def outputs(self, width: int) -> int:
        """One."""
        return 1

    def fitted(self, y: Tensor, width: int) -> Self:
        """Two classes, and the weights that they ask for."""
        if width != 2:
            raise expect_width(self, width, "two are expected (task=classification takes more)")
        if self.class_weights is None:
            return self
        other = self.model_copy()
        other._weights = weights_of(self.class_weights, torch.bincount(y, minlength=2), "classes")
        return other

    def prepared(self, y: Tensor, width: int) -> Prepared:
        """0 and 1 as they are."""
        return Prepared(y, y, 2, ("two classes told by one logit: task binary",))

    def wrong(self, y: Tensor, width: int, rng: np.random.Generator) -> Tensor:
        """The other class."""
        return 1 - y

    def rivals(self, y: Tensor, width: int) -> Iterator[Tensor]:
        """The other class."""
        yield 1 - y

    def usual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Binary cross-entropy; `y` are 0 or 1, or probabilities [n, 2]."""
        yes = y[:, 1] if y.dim() == 2 else y.to(outputs.dtype)
        losses = F.binary_cross_entropy_with_logits(self.shaped(outputs)[:, 0], yes, reduction="none")
        if self._weights is None:
            return losses
        return losses * (self._weights[0] + (self._weights[1] - self._weights[0]) * yes)

    def hard(self, y: Tensor) -> bool:
        """Classes, not probabilities."""
        return y.dtype == torch.int64

    def soft(self, y: Tensor, outputs: int) -> Tensor:
        """One-hot, of both classes."""
        return F.one_hot(y, 2).to(torch.float32)

    def usual_margins(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The logit towards the true class."""
        return outputs[:, 0] * (2 * y - 1)

    def score(self, outputs: Tensor, y: Tensor) -> float:
        """Share of records whose class is predicted."""
        return float(host(((self.shaped(outputs)[:, 0] > 0) == (y > 0)).float().mean()))

    def baseline(self, y: Tensor) -> float:
        """The share of the more frequent class."""
        share = float(host(y.float().mean())) if len(y) else 0.0
        return max(share, 1 - share)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Of both classes."""
        yes = torch.sigmoid(self.shaped(outputs))
        return torch.cat([1 - yes, yes], 1)

    def expected(self, records: int, outputs: int) -> str:
        """One logit."""
        return f"one logit per record, {(records, 1)} or {(records,)}, is expected (task=classification takes two)"

    def squashed(self, outputs: Tensor) -> str | None:
        """A sigmoid twice."""
        return sigmoid_twice(self, outputs, "logit")
