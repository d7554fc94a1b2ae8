"""Gradients at fixed parameters: of a mean loss, and of single samples without ever stacking them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scapegoat.gradients.direct import sample_rows
from scapegoat.gradients.layers import maker
from scapegoat.gradients.pieces import Piece, Slot
from scapegoat.gradients.recording import Recording, record
from scapegoat.models.base import FlatModel


class SampleGradients:
    """The gradients of single samples, known by their inner products and weighted sums.

    No [samples, d] matrix exists for layers whose inner products follow from inputs and output gradients.
    """

    def __init__(self, pieces: Sequence[Piece], samples: int, d: int) -> None:
        self._pieces = pieces
        self._samples = samples
        self._d = d

    def __len__(self) -> int:
        return self._samples

    def gram(self) -> Tensor:
        """Inner products with each other [s, s], float64."""
        total = torch.zeros(self._samples, self._samples, dtype=torch.float64)
        for piece in self._pieces:
            total += piece.gram()
        return (total + total.T) / 2

    def dot(self, vectors: Tensor) -> Tensor:
        """Inner products with the rows of `vectors` [k, d]: [s, k], float64."""
        total = torch.zeros(self._samples, len(vectors), dtype=torch.float64)
        for piece in self._pieces:
            total += piece.dot(vectors)
        return total

    def combine(self, weights: Tensor) -> Tensor:
        """The sum of the gradients times `weights` [s]: [d]."""
        out = torch.zeros(self._d)
        weights = weights.to(torch.float32)
        for piece in self._pieces:
            piece.combine(weights, out)
        return out


class GradientOracle:
    """Gradients of the cross-entropy at fixed parameters, in evaluation mode (BatchNorm uses its running statistics)."""

    def __init__(self, model: FlatModel, vector: Tensor) -> None:
        self.model = model
        self.vector = vector

    def _ready(self) -> None:
        self.model.point_at(self.vector)
        self.model.module.eval()

    def mean(self, x: Tensor, y: Tensor) -> Tensor:
        """Gradient [d] of the mean cross-entropy."""
        self._ready()
        with torch.enable_grad():
            loss = F.cross_entropy(self.model.module(self.model.prepare(x)), y)
        return self._flatten(torch.autograd.grad(loss, self.model.parameters, allow_unused=True))

    def _flatten(self, grads: Sequence[Tensor | None]) -> Tensor:
        out = torch.empty(self.model.d)
        for grad, part, (_, shape) in zip(grads, out.split(self.model.sizes), self.model.layout, strict=True):
            if grad is None:
                part.zero_()
            else:
                part.view(shape).copy_(grad)
        return out

    def per_sample(self, x: Tensor, y: Tensor) -> SampleGradients:
        """The gradients of every sample's own cross-entropy."""
        self._ready()
        plan = plan_for(self.model, x, y)
        pieces, rest = plan.read(self.model, x, y)
        if rest:
            pieces.append(sample_rows(self.model, x, y, rest, plan.slots))
        return SampleGradients(pieces, len(x), self.model.d)


@dataclass(frozen=True)
class Plan:
    """Which layers' calls tell the gradients of which parameters; found out once a model, layer by layer."""

    slots: tuple[Slot, ...]
    owned: dict[nn.Module, dict[str, int]]

    def read(self, model: FlatModel, x: Tensor, y: Tensor) -> tuple[list[Piece], list[int]]:
        """The pieces of the understood layers, and the indices of the parameters that are left."""
        pieces: list[Piece] = []
        rest = set(range(len(self.slots)))
        if self.owned:
            recording = record(model, x, y, self.owned)
            for module, names in self.owned.items():
                if understood(model, recording, module, names, len(x)):
                    rest.difference_update(names.values())
                    calls = recording.calls.get(module)
                    if calls:
                        make = maker(module)
                        assert make is not None
                        pieces.append(make(module, calls, {n: self.slots[i] for n, i in names.items()}))
        return pieces, sorted(rest)


def understood(model: FlatModel, recording: Recording, module: nn.Module, names: dict[str, int], samples: int) -> bool:
    """Whether the calls of this layer are the whole story of its parameters, one row a sample."""
    calls = recording.calls.get(module, [])
    return all(len(call.inputs) == len(call.grads) == samples for call in calls) and all(
        recording.uses.get(id(model.parameters[i]), 0) == len(calls) for i in names.values()
    )


_PLANS: weakref.WeakKeyDictionary[FlatModel, Plan] = weakref.WeakKeyDictionary()


def plan_for(model: FlatModel, x: Tensor, y: Tensor) -> Plan:
    """The plan of a model that stands in evaluation mode; made on the first call by trying it on a few samples."""
    plan = _PLANS.get(model)
    if plan is None:
        plan = _PLANS[model] = _make_plan(model, x, y)
    return plan


def _make_plan(model: FlatModel, x: Tensor, y: Tensor) -> Plan:
    starts = torch.tensor([0, *model.sizes]).cumsum(0).tolist()
    slots = tuple(Slot(start, shape) for start, (_, shape) in zip(starts[:-1], model.layout, strict=True))
    index = {id(p): i for i, p in enumerate(model.parameters)}
    owned: dict[nn.Module, dict[str, int]] = {}
    for module in model.module.modules():
        names = {n: index[id(p)] for n, p in module._parameters.items() if p is not None and id(p) in index}
        if names and maker(module) is not None:
            owned[module] = names
    # Batch sizes that differ from the real one tell a batch dimension from another of equal length.
    few = 2 if len(x) == 3 else 3
    pick = torch.arange(few) % len(x)
    probe = Plan(slots, owned)
    sound = _agreeing(probe, model, x[pick], y[pick])
    return Plan(slots, {m: names for m, names in owned.items() if all(i in sound for i in names.values())})


def _agreeing(plan: Plan, model: FlatModel, x: Tensor, y: Tensor) -> set[int]:
    """The parameters whose per-sample gradients, read from calls, equal one-sample-at-a-time autograd."""
    try:
        pieces, rest = plan.read(model, x, y)
    except RuntimeError:
        return set()
    sound = set(range(len(plan.slots))) - set(rest)
    for s in range(len(x)):
        with torch.enable_grad():
            loss = F.cross_entropy(model.module(model.prepare(x[s : s + 1])), y[s : s + 1])
        grads = torch.autograd.grad(loss, model.parameters, allow_unused=True)
        found = SampleGradients(pieces, len(x), model.d).combine(F.one_hot(torch.tensor(s), len(x)))
        for i in list(sound):
            want = grads[i]
            have = found[plan.slots[i].slice]
            size = 0.0 if want is None else float(want.norm())
            gap = have if want is None else have - want.reshape(-1)
            if not float(gap.norm()) <= 1e-3 * size + 1e-7:
                sound.discard(i)
    return sound
