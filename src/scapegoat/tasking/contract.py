"""What every task shares: the loss per record, and all that follows from it.

A target is *wrong* for a record if the loss calls it wrong: another class, flipped labels, a value a spread away. The
*margin* of a record is the least loss of a wrong target minus the loss of the true one: positive where the model
prefers the truth to every wrong target. Under cross-entropy that is the true logit minus the largest other one, the
paper's rule for calling a record a member; under other losses it is the same rule carried over, which is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

from scapegoat.devices import host
from scapegoat.errors import InputError
from scapegoat.registry import Component, Registry, added
from scapegoat.tasking.own_loss import OwnLoss

LabelKind = Literal["classes", "sets", "numbers"]
"""What labels are: one class per record, several labels that hold or do not, or numbers."""

Reduction = Literal["none", "mean", "sum"]

RESAMPLED = 200
"""Draws of the test records that an interval of a metric rests on."""


class Prepared(NamedTuple):
    """Labels as the loss takes them, the group of each record, how many groups there are, and what there is to say."""

    y: Tensor
    strata: Tensor
    groups: int
    notes: tuple[str, ...] = ()


class TaskSpec(Component):
    """Options of a task. It is `fitted` to labels before it is used.

    Examples
    --------
    >>> get("classification").metric, get("regression").labels
    ('accuracy', 'numbers')
    """

    labels: ClassVar[LabelKind]
    """What labels it takes."""
    metric: ClassVar[str] = "accuracy"
    """What `score` is called."""

    loss: str | None = added(None)
    """`package.module:loss`, called with outputs and targets, which returns one loss per record; none: the usual."""
    code: str | None = added(None)
    """The fingerprint that the code of `loss` must have; a run fills it in."""

    _own: OwnLoss | None = PrivateAttr(default=None)

    def pinned(self) -> Self:
        """With the code of a loss of the user's own noted, so that an edited one is another run."""
        return self if self.loss is None else self.model_copy(update={"code": self.own.code})

    @property
    def own(self) -> OwnLoss:
        """The user's own loss, imported on first use."""
        assert self.loss is not None
        if self._own is None:
            self._own = OwnLoss(self.loss, self.code)
        return self._own

    def on(self, device: torch.device) -> Self:
        """The task with what it took from the labels on a device."""
        moved = {k: v.to(device) for k, v in (self.__pydantic_private__ or {}).items() if isinstance(v, Tensor)}
        if not moved or device.type == "cpu":
            return self
        other = self.model_copy()
        for name, tensor in moved.items():
            setattr(other, name, tensor)
        return other

    # What the labels say

    def outputs(self, width: int) -> int:
        """Outputs of a model, for so many classes, labels or numbers per record."""
        return width

    def fitted(self, y: Tensor, width: int) -> Self:
        """The task with what it takes from the labels; InputError where they are of another task."""
        return self

    def prepared(self, y: Tensor, width: int) -> Prepared:
        """Labels as the loss takes them, in groups that targets and clients' shares are drawn by."""
        raise NotImplementedError

    def wrong(self, y: Tensor, width: int, rng: np.random.Generator) -> Tensor:
        """A wrong target per record, drawn by chance: what an attack claims of the records."""
        raise NotImplementedError

    def rivals(self, y: Tensor, width: int) -> Iterator[Tensor]:
        """Wrong targets that a margin compares the truth with."""
        raise NotImplementedError

    # What the outputs say

    def losses(self, outputs: Tensor, y: Tensor, reduction: Reduction = "none") -> Tensor:
        """The loss of each record [n], or their mean or sum."""
        losses = self.usual(outputs, y) if self.loss is None else self.own(self.shaped(outputs), y)
        return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()

    def usual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record where the user has none of their own."""
        raise NotImplementedError

    def shaped(self, outputs: Tensor) -> Tensor:
        """Outputs as the loss takes them; [n] is as good as [n, 1]."""
        return outputs[:, None] if outputs.dim() == 1 else outputs

    def hard(self, y: Tensor) -> bool:
        """Whether these are plain labels, not shares of several."""
        return True

    def at_outputs(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each record [n], and the gradient of their sum at the outputs."""
        leaf = outputs.detach().requires_grad_()
        with torch.enable_grad():
            losses = self.losses(leaf, y)
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), gradient

    def soft(self, y: Tensor, outputs: int) -> Tensor:
        """Labels [n, ...] that can be mixed with each other."""
        return y

    @torch.no_grad()
    def margins(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The least loss of a wrong target minus that of the true one [n]; minus infinity where a model diverged."""
        if self.loss is None:
            margin = self.usual_margins(self.shaped(outputs), y)
        else:
            truth = self.losses(outputs, y)
            rivals = [self.losses(outputs, rival) for rival in self.rivals(y, self.shaped(outputs).shape[1])]
            margin = torch.stack(rivals).amin(0) - truth
        return torch.where(margin.isnan(), torch.full_like(margin, -torch.inf), margin)

    def usual_margins(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The same under the usual loss; NaN where the outputs are."""
        raise NotImplementedError

    def score(self, outputs: Tensor, y: Tensor) -> float:
        """How good the outputs are, `metric`: 1 at best, `baseline` for a model that has learnt nothing."""
        raise NotImplementedError

    def baseline(self, y: Tensor) -> float:
        """The score of the best answer that is the same for all records."""
        raise NotImplementedError

    def error(self, outputs: Tensor, y: Tensor) -> float:
        """What a server compares candidates by beside their loss: less is better."""
        return 1.0 - self.score(outputs, y)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Outputs [n, ...] between 0 and 1, for rules that compare what clients' models answer to noise."""
        return torch.sigmoid(self.shaped(outputs))

    def interval(self, outputs: Tensor, y: Tensor) -> tuple[float, float]:
        """A 95% interval of the score, over draws of the records."""
        generator = torch.Generator().manual_seed(0)
        draws = [torch.randint(len(y), (len(y),), generator=generator) for _ in range(RESAMPLED)]
        outputs, y = host(outputs), host(y)
        scores = np.array([self.score(outputs[rows], y[rows]) for rows in draws])
        low, high = np.quantile(scores, [0.025, 0.975])
        return float(low), float(high)

    # What a model must answer

    def shape_problem(self, shape: tuple[int, ...], records: int, outputs: int) -> str | None:
        """What is wrong with outputs of this shape; None if nothing is."""
        if shape == (records, outputs) or (outputs == 1 and shape == (records,)):
            return None
        return self.expected(records, outputs)

    def expected(self, records: int, outputs: int) -> str:
        """What outputs are expected, for a message."""
        return f"outputs of shape {(records, outputs)} are expected"

    def squashed(self, outputs: Tensor) -> str | None:
        """What is wrong with outputs that are squashed to 0..1, or to sums of 1; None if nothing is or they are not."""
        return None


def within_unit(outputs: Tensor) -> bool:
    """Whether outputs that differ all lie in 0..1."""
    low, high = float(outputs.min()), float(outputs.max())
    return low >= 0 and high <= 1 and high > low


def sigmoid_twice(task: TaskSpec, outputs: Tensor, expected: str) -> str | None:
    """What is wrong with outputs that a sigmoid has squashed before the usual loss does it; None if nothing is."""
    if task.loss is not None or not within_unit(outputs):
        return None
    return (
        f"its outputs lie in 0..1, and the loss applies the sigmoid itself: return the {expected}, without the last one"
    )


def expect_width(task: TaskSpec, given: int, right: str) -> InputError:
    """The error for labels of another task."""
    return InputError(f"task {task.name}: {given} classes; {right}")


registry: Registry[TaskSpec] = Registry("task", TaskSpec, "scapegoat.tasks")
register = registry.register
get = registry.get
