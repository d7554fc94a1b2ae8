"""Several labels per record, each of which holds or does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PrivateAttr
from torch import Tensor

from scapegoat.devices import host
from scapegoat.errors import InputError
from scapegoat.registry import added
from scapegoat.tasking.contract import Prepared, TaskSpec, register, sigmoid_twice
from scapegoat.tasking.weighing import Weights, weights_of


@register("multilabel")
class MultiLabel(TaskSpec):
    """Labels [records, labels] of 0 and 1, a logit each, under binary cross-entropy, the mean over the labels.

    A wrong target has labels flipped, each by a coin of its own, at least one. The margin is positive where the model
    predicts every label: the smallest logit towards the truth, or, where some are wrong, the sum of theirs.
    """

    labels = "sets"
    metric = "label accuracy"

    class_weights: Weights = added(None)
    """Weight of a label where it holds, one per label, or `balanced` (as much in all as where it does not)."""

    _weights: Tensor | None = PrivateAttr(default=None)

    def fitted(self, y: Tensor, width: int) -> Self:
        """Labels that hold somewhere, and the weights that they ask for."""
        if width < 2:
            raise InputError("task multilabel: one label per record; several are expected (task=binary takes one)")
        holds = y.sum(0)
        if self.class_weights is None:
            return self
        other = self.model_copy()
        if self.class_weights == "balanced":
            other._weights = ((len(y) - holds) / holds.clamp_min(1)).clamp(1e-3, 1e3).float()
        else:
            other._weights = weights_of(self.class_weights, holds, "labels")
        return other

    def prepared(self, y: Tensor, width: int) -> Prepared:
        """Zeros and ones. Records are grouped by the rarest label that they have; those without any are a group."""
        y = y.to(torch.float32)
        rarest_first = torch.argsort(y.sum(0), stable=True)
        found, strata = y[:, rarest_first].max(1)
        names = torch.where(found > 0, rarest_first[strata], torch.tensor(width))
        return Prepared(y, names, width + 1)

    def wrong(self, y: Tensor, width: int, rng: np.random.Generator) -> Tensor:
        """Every label flipped by a coin of its own; where none fell, one label drawn by chance."""
        flips = torch.from_numpy(rng.random(y.shape) < 0.5)
        one = torch.from_numpy(rng.integers(0, width, len(y)))
        untouched = ~flips.any(1)
        flips[untouched, one[untouched]] = True
        return torch.where(flips, 1 - y, y)

    def rivals(self, y: Tensor, width: int) -> Iterator[Tensor]:
        """One label flipped, each in turn."""
        for label in range(width):
            other = y.clone()
            other[:, label] = 1 - other[:, label]
            yield other

    def usual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The mean binary cross-entropy of a record's labels."""
        losses = F.binary_cross_entropy_with_logits(outputs, y, pos_weight=self._weights, reduction="none")
        return losses.mean(1)

    def usual_margins(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The smallest logit towards the truth; where labels are predicted wrongly, the sum of theirs.

        That is the least loss (summed over labels) of another set of labels, minus that of the true one.
        """
        towards = outputs * (2 * y - 1)
        wrongly = towards.clamp(max=0).sum(1)
        return torch.where(wrongly < 0, wrongly, towards.amin(1))

    def score(self, outputs: Tensor, y: Tensor) -> float:
        """Share of labels that are predicted."""
        return float(host(((outputs > 0) == (y > 0)).float().mean()))

    def baseline(self, y: Tensor) -> float:
        """Of answering each label as it mostly is."""
        share = y.mean(0)
        return float(host(torch.maximum(share, 1 - share).mean())) if len(y) else 0.0

    def expected(self, records: int, outputs: int) -> str:
        """A logit per label."""
        return f"logits of shape {(records, outputs)} are expected (one for each of the {outputs} labels)"

    def squashed(self, outputs: Tensor) -> str | None:
        """A sigmoid twice."""
        return sigmoid_twice(self, outputs, "logits")
