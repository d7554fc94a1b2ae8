"""One of several classes per record: the task of the paper."""

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
from scapegoat.tasking.contract import Prepared, Reduction, TaskSpec, register
from scapegoat.tasking.weighing import Weights, weights_of


@register("classification")
class Classification(TaskSpec):
    """One of several classes per record, a logit each, under cross-entropy.

    A wrong target is another class. The margin is the true class's logit minus the largest other one.

    Examples
    --------
    >>> Classification().margins(torch.tensor([[2.0, 0.5, 1.0]]), torch.tensor([0]))
    tensor([1.])
    """

    labels = "classes"

    class_weights: Weights = added(None)
    """Weight of each class in the loss: numbers, or `balanced` (in inverse proportion to the classes' sizes)."""

    _weights: Tensor | None = PrivateAttr(default=None)

    def fitted(self, y: Tensor, width: int) -> Self:
        """With the weights that the labels ask for."""
        if self.class_weights is None:
            return self
        other = self.model_copy()
        other._weights = weights_of(self.class_weights, torch.bincount(y, minlength=width), "classes")
        return other

    def prepared(self, y: Tensor, width: int) -> Prepared:
        """Classes as they are."""
        return Prepared(y, y, width)

    def wrong(self, y: Tensor, width: int, rng: np.random.Generator) -> Tensor:
        """Another class, uniformly."""
        other = rng.integers(0, max(width - 1, 1), len(y))
        return torch.from_numpy(other + (other >= y.numpy()))

    def rivals(self, y: Tensor, width: int) -> Iterator[Tensor]:
        """Every other class."""
        for step in range(1, width):
            yield (y + step) % width

    def losses(self, outputs: Tensor, y: Tensor, reduction: Reduction = "none") -> Tensor:
        """Cross-entropy; `y` are classes, or probabilities [n, classes]."""
        if self.loss is not None or self._weights is not None:
            return super().losses(outputs, y, reduction)
        return F.cross_entropy(outputs, y, reduction=reduction)

    def usual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy, times the weight of the class; over n, not over the batch's weights as torch's mean has it."""
        return F.cross_entropy(outputs, y, weight=self._weights, reduction="none")

    def hard(self, y: Tensor) -> bool:
        """Classes, not probabilities."""
        return y.dtype == torch.int64

    def at_outputs(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """softmax - one-hot."""
        if self.loss is not None or self._weights is not None:
            return super().at_outputs(outputs, y)
        losses = F.cross_entropy(outputs, y, reduction="none")
        gradient = torch.softmax(outputs, 1)
        gradient[torch.arange(len(y), device=y.device), y] -= 1
        return losses, gradient

    def soft(self, y: Tensor, outputs: int) -> Tensor:
        """One-hot."""
        return F.one_hot(y, outputs).to(torch.float32)

    def usual_margins(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The true class's logit minus the largest other one."""
        truth = outputs.gather(1, y[:, None]).squeeze(1)
        others = outputs.scatter(1, y[:, None], -torch.inf).amax(1)
        return truth - others

    def score(self, outputs: Tensor, y: Tensor) -> float:
        """Share of records whose class is predicted."""
        return float(host((outputs.argmax(1) == y).float().mean()))

    def error(self, outputs: Tensor, y: Tensor) -> float:
        """Share of records whose class is not."""
        return float(host((outputs.argmax(1) != y).float().mean()))

    def baseline(self, y: Tensor) -> float:
        """The share of the most frequent class."""
        return float(np.bincount(host(y).numpy()).max() / len(y)) if len(y) else 0.0

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Softmax."""
        return outputs.softmax(1)

    def shape_problem(self, shape: tuple[int, ...], records: int, outputs: int) -> str | None:
        """A logit per class; one output is another task's."""
        if shape == (records, outputs):
            return None
        if shape in ((records,), (records, 1)):
            meant = "task=binary takes one logit" if outputs == 2 else "task=regression takes the labels as numbers"
            return f"{self.expected(records, outputs)}; {meant}"
        return self.expected(records, outputs)

    def expected(self, records: int, outputs: int) -> str:
        """Logits."""
        return f"logits of shape {(records, outputs)} are expected (one for each of the {outputs} classes)"

    def squashed(self, outputs: Tensor) -> str | None:
        """Softmax twice."""
        if self.loss is not None or float(outputs.min()) < 0 or float((outputs.sum(1) - 1).abs().max()) > 1e-4:
            return None
        return (
            "its outputs are probabilities (each row sums to 1), and the loss applies softmax itself: return the "
            "logits, without the last Softmax"
        )
