"""Which layers' calls tell the per-sample gradients of which parameters: found out once per model, layer by layer."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from scapegoat.devices import host
from scapegoat.gradients.layer_gradients import LinearGradients, Piece, SampleRows, Slot
from scapegoat.gradients.layers import maker
from scapegoat.gradients.recording import Recording, record
from scapegoat.kernels.routes import RowProduct
from scapegoat.modelling.flat_model import FlatModel

ACTIVATION_FLOATS = 40_000_000
"""Inputs and output gradients that a pass may keep (160 MB); more samples are passed in chunks. 50 for ResNet-20."""

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class RowStore:
    """Memory for gradients that are written out, kept from round to round: fresh pages cost more than filling them."""

    def __init__(self) -> None:
        self._rows: dict[Slot, Tensor] = {}
        self._holder: weakref.ref[Any] | None = None

    def free(self) -> bool:
        """Whether nobody uses it any more."""
        return self._holder is None or self._holder() is None

    def lend(self, holder: object) -> None:
        """It is in use as long as `holder` lives."""
        self._holder = weakref.ref(holder)

    def put(self, piece: SampleRows, start: int, samples: int) -> None:
        """Copy a chunk's rows to their place among all samples."""
        for slot, rows in piece.parts:
            kept = self._rows.get(slot)
            if kept is None or len(kept) != samples:
                kept = self._rows[slot] = torch.empty(samples, slot.size, device=rows.device)
            kept[start : start + len(rows)] = rows

    def take(self, piece: SampleRows, route: RowProduct | None) -> SampleRows:
        """The rows of all samples for the parameters of a chunk's piece."""
        return SampleRows([(slot, self._rows[slot]) for slot, _ in piece.parts], route)


@dataclass(frozen=True)
class Reading:
    """Pieces of the understood layers and each sample's loss.

    `idle` are parameters of understood layers that had no part in the loss, `rest` (by index) those that are left.
    """

    pieces: list[Piece]
    idle: list[Slot]
    rest: list[int]
    losses: Tensor
    floats: int

    def total(self, rows: slice, out: Tensor) -> None:
        """Write the sum over a range of samples into `out` [d]; only where no parameter is left over."""
        for slot in self.idle:
            slot.of(out).zero_()
        for piece in self.pieces:
            piece.total(rows, out)

    def totals(self, ends: Sequence[int], out: Tensor) -> None:
        """Write the sums over consecutive ranges of samples into the rows of `out` [k, d].

        Range k ends before sample `ends[k]`, the first starts at 0. Only where no parameter is left over.
        """
        for slot in self.idle:
            slot.columns(out).zero_()
        for piece in self.pieces:
            if isinstance(piece, LinearGradients):
                piece.totals(ends, out)
                continue
            for row, (start, end) in zip(out, itertools.pairwise((0, *ends)), strict=True):
                piece.total(slice(start, end), row)


@dataclass(frozen=True)
class LayerMap:
    """The understood layers with the indices of their parameters by name, and the samples that a pass takes at once."""

    slots: tuple[Slot, ...]
    owned: dict[nn.Module, dict[str, int]]
    chunk: int
    store: RowStore = field(default_factory=RowStore)

    @property
    def complete(self) -> bool:
        """Whether every parameter belongs to an understood layer."""
        return sum(len(names) for names in self.owned.values()) == len(self.slots)

    @property
    def convolves(self) -> bool:
        """Whether a convolution is among the layers; its weight gradients are best left to one backward pass."""
        return any(isinstance(module, CONVOLUTIONS) for module in self.owned)

    def read(
        self, model: FlatModel, x: Tensor, y: Tensor, weights: Tensor | None = None, store: RowStore | None = None
    ) -> Reading:
        """Pass over the samples, chunk by chunk, with the module in the mode it is in."""
        found: dict[nn.Module, list[Piece]] = {}
        told = dict(self.owned)
        losses = []
        floats = 0
        for start in range(0, len(x), self.chunk):
            here = slice(start, start + self.chunk)
            # Whole where it can be: what is known of a tensor is remembered by the tensor.
            part = x if self.chunk >= len(x) else x[here]
            recording = record(model, part, y[here], told, None if weights is None else weights[here])
            losses.append(recording.losses)
            floats += sum(c.inputs.numel() + c.grads.numel() for calls in recording.calls.values() for c in calls)
            for module, names in list(told.items()):
                if not understood(model, recording, module, names, len(recording.losses)):
                    del told[module]
                elif module in recording.calls:
                    make = maker(module)
                    assert make is not None
                    slots = {name: self.slots[i] for name, i in names.items()}
                    piece = make(module, recording.calls.pop(module), slots)
                    if isinstance(piece, SampleRows) and store is not None:
                        store.put(piece, start, len(x))
                        found[module] = [piece]
                    else:
                        found.setdefault(module, []).append(piece)
        pieces = [
            store.take(piece, model.routes.rows)
            if isinstance(piece := found[module][0], SampleRows) and store
            else piece.joined(found[module])
            for module in told
            if module in found
        ]
        known = {i for names in told.values() for i in names.values()}
        rest = [i for i in range(len(self.slots)) if i not in known]
        idle = [self.slots[i] for module in told if module not in found for i in told[module].values()]
        return Reading(pieces, idle, rest, torch.cat(losses), floats)


def understood(model: FlatModel, recording: Recording, module: nn.Module, names: dict[str, int], samples: int) -> bool:
    """Whether the calls of this layer are the whole story of its parameters, one row per sample."""
    calls = recording.calls.get(module, [])
    return all(call.inputs.shape[:1] == call.grads.shape[:1] == (samples,) for call in calls) and all(
        recording.uses.get(id(model.parameters[i]), 0) == len(calls) for i in names.values()
    )


_PLANS: weakref.WeakKeyDictionary[FlatModel, dict[bool, LayerMap]] = weakref.WeakKeyDictionary()


def layer_map_for(model: FlatModel, x: Tensor, y: Tensor) -> LayerMap:
    """The layer_map of a model in the mode it is in; made on the first call by trying it on a few of the samples."""
    layer_maps = _PLANS.setdefault(model, {})
    mode = model.module.training
    if mode not in layer_maps:
        with torch.random.fork_rng(devices=[]), model.exactly():
            layer_maps[mode] = _make_plan(model, x, y)
    return layer_maps[mode]


def forget_layer_maps(model: FlatModel) -> None:
    """As if the model had never been asked for a layer_map."""
    _PLANS.pop(model, None)


def _make_plan(model: FlatModel, x: Tensor, y: Tensor) -> LayerMap:
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
    pick = torch.arange(few, device=x.device) % len(x)
    sound, floats = _agreeing(LayerMap(slots, owned, few), model, x[pick], y[pick])
    owned = {module: names for module, names in owned.items() if sound.issuperset(names.values())}
    return LayerMap(slots, owned, max(8, ACTIVATION_FLOATS // max(1, floats // few)))


def _agreeing(layer_map: LayerMap, model: FlatModel, x: Tensor, y: Tensor) -> tuple[set[int], int]:
    """The parameters whose per-sample gradients, read from calls, equal one-sample-at-a-time autograd."""
    try:
        reading = layer_map.read(model, x, y)
        _one_sample(model, x[:1], y[:1])
    except (RuntimeError, ValueError):
        # A layer that cannot work like this (an input changed in place, BatchNorm on one sample) tells nothing.
        return set(), 0
    sound = set(range(len(layer_map.slots))) - set(reading.rest)
    out = torch.zeros(model.d, device=x.device)
    for s in range(len(x)):
        here = slice(s, s + 1)
        reading.total(here, out)
        sound -= _differing(layer_map.slots, sound, _one_sample(model, x[here], y[here]), out)
    return sound, reading.floats


def _differing(slots: tuple[Slot, ...], among: set[int], grads: tuple[Tensor | None, ...], out: Tensor) -> set[int]:
    differing = set()
    for i in among:
        have, want = slots[i].of(out), grads[i]
        want = torch.zeros_like(have) if want is None else want
        apart, size = host(torch.stack([torch.dist(have, want), want.norm()])).tolist()
        if not apart <= 1e-3 * size + 1e-7:
            differing.add(i)
    return differing


def _one_sample(model: FlatModel, x: Tensor, y: Tensor) -> tuple[Tensor | None, ...]:
    with torch.enable_grad():
        loss = model.task.losses(model.outputs(x), y, "mean")
    return torch.autograd.grad(loss, model.parameters, allow_unused=True)
