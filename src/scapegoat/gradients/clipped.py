"""The clients' sums of clipped per-record gradients: the sensitive half of DP-SGD (Abadi et al., 2016, Algorithm 1).

A record's gradient is that of its own loss, the record passing alone. Where every layer is understood, one pass tells
all norms, and the clipped sums come from what that pass has kept, so no [records, d] matrix exists. Convolutions, whose
norms need their gradients, and modules that are not understood are worked through a few records at a time.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scapegoat.devices import Number, exact, host, later
from scapegoat.errors import InputError
from scapegoat.gradients.direct import rows_and_losses
from scapegoat.gradients.layer_gradients import BLOCK_FLOATS
from scapegoat.gradients.layer_map import Reading, layer_map_for
from scapegoat.modelling.flat_model import FlatModel

CONVOLVED_AT_ONCE = 16
"""Images whose gradients are held at once: with their activations no more memory than an ordinary round takes."""


@dataclass(frozen=True)
class ClippedGradients:
    """For each client: the mean loss of its usable records (NaN if there are none), and how many were shortened."""

    losses: list[Number]
    shortened: list[int]


def clipped_gradients(
    model: FlatModel,
    vector: Tensor,
    x: Tensor,
    y: Tensor,
    sizes: Sequence[int],
    clip: float,
    out: Tensor,
    divisors: Sequence[float] | None = None,
) -> ClippedGradients:
    """Write, for each client, the sum of its records' gradients, each shortened to at most `clip`, to its row of `out`.

    `x` and `y` are the clients' batches one after the other, `sizes` their lengths (0 is allowed, and gives a row of
    zeros), `out` is [clients, d]. With `divisors` each sum is divided by the client's: a constant that does not depend
    on the records drawn, such as the expected batch size. The module is in training mode.

    A record whose gradient is not finite counts for nothing: no record moves a sum by more than `clip`.

    >>> from scapegoat.modelling.flat_model import FlatModel
    >>> model = FlatModel(torch.nn.Linear(4, 3), (4,), 3)
    >>> out = torch.empty(2, model.d)
    >>> x, y = 100 * torch.ones(5, 4), torch.zeros(5, dtype=torch.int64)
    >>> clipped_gradients(model, torch.zeros(model.d), x, y, sizes=[3, 2], clip=1.0, out=out).shortened
    [3, 2]
    >>> [round(float(norm), 4) for norm in out.norm(dim=1)]
    [3.0, 2.0]
    """
    if not (math.isfinite(clip) and clip > 0):
        raise InputError(f"clip is {clip:g}; it must be a positive number")
    refuse_mixing(model)
    losses = weights = torch.empty(0, device=out.device)
    if len(y) == 0:
        out.zero_()
    else:
        model.point_at(vector)
        model.module.train()
        versions = [buffer._version for buffer in model.module.buffers()]
        losses, weights = _Clipping(model, x, y, clip).sums(sizes, out)
        if versions != [buffer._version for buffer in model.module.buffers()]:
            raise InputError("the model's buffers change as it trains: they would tell of records without any noise")
    if divisors is not None:
        for row, divisor in zip(out, divisors, strict=True):
            row.div_(divisor)
    usable = torch.split(host(weights), list(sizes))
    return ClippedGradients(
        losses=[later(part.nanmean()) for part in torch.split(losses, list(sizes))],
        shortened=[int(((part > 0) & (part < 1)).sum()) for part in usable],
    )


def refuse_mixing(model: FlatModel) -> None:
    """Refuse a model whose records have no gradient of their own, or whose statistics leave without noise."""
    for name, module in model.module.named_modules():
        tracked = isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats
        if tracked or isinstance(module, nn.modules.batchnorm._BatchNorm):
            kind = type(module).__name__
            problem = f"{name or 'the model'} is {kind}, which keeps statistics of the records together"
            raise InputError(f"{problem}: no record has a gradient of its own; use GroupNorm or LayerNorm")


class _Clipping:
    """The work of one call: where every layer is understood by its calls, else sample by sample."""

    def __init__(self, model: FlatModel, x: Tensor, y: Tensor, clip: float) -> None:
        usual = torch.ones(len(x), dtype=torch.bool)
        if x.is_floating_point():
            usual = host(x.flatten(1).isfinite().all(1))
        some = bool(usual.any()) and not bool(usual.all())
        # What layers do is tried on records that tell: NaN equals nothing.
        rows = usual.nonzero()[:, 0].to(x.device) if some else None
        self._layer_map = layer_map_for(model, x, y) if rows is None else layer_map_for(model, x[rows], y[rows])
        self._understood = self._layer_map.complete
        self._model, self._x, self._y, self._clip = model, x, y, clip

    def sums(self, sizes: Sequence[int], out: Tensor) -> tuple[Tensor, Tensor]:
        """Write the clients' sums to `out`; returns each record's loss, and the factor that its gradient got."""
        everything = len(self._y)
        losses, weights = torch.empty(2, everything, device=out.device)
        for row, size in zip(out, sizes, strict=True):
            if size == 0:
                row.zero_()
        start = 0
        while start < everything:
            stop = min(everything, start + self._at_once())
            first, last, ends = _overlapping(sizes, start, stop)
            rows = out[first:last]
            begun = rows[0].clone() if sum(sizes[:first]) < start else None
            whole = stop - start == everything  # what is known of a tensor is remembered by the tensor
            x = self._x if whole else self._x[start:stop]
            found = self._part(x, self._y[start:stop], ends, rows)
            if begun is not None:
                rows[0] = begun.add_(rows[0]) if found else begun
            if found:
                losses[start:stop], weights[start:stop] = found
                start = stop
        return losses, weights

    def _at_once(self) -> int:
        if not self._understood:
            return max(1, min(32, BLOCK_FLOATS // self._model.d))
        return min(self._layer_map.chunk, CONVOLVED_AT_ONCE) if self._layer_map.convolves else self._layer_map.chunk

    def _part(self, x: Tensor, y: Tensor, ends: list[int], out: Tensor) -> tuple[Tensor, Tensor] | None:
        """The sums of consecutive ranges of records; None if it turns out that the layers are not understood."""
        reading = self._read(x, y)
        if reading is None:
            return None
        squares = torch.zeros(len(y), dtype=exact(out.device), device=out.device)
        for piece in reading.pieces:
            squares += piece.squares()
        usable = host(squares.isfinite())
        if not bool(usable.all()):
            return self._usable_part(x, y, ends, out, usable)
        weights = (self._clip / squares.sqrt()).clamp_(max=1.0).to(torch.float32)
        pieces = [piece.weighted(weights) for piece in reading.pieces]
        dataclasses.replace(reading, pieces=pieces).totals(ends, out)
        return reading.losses, weights

    def _usable_part(
        self, x: Tensor, y: Tensor, ends: list[int], out: Tensor, usable: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """The same without some records: a weight of 0 would not do, since 0 times NaN is NaN."""
        losses, weights = torch.full((len(y),), math.nan, device=out.device), torch.zeros(len(y), device=out.device)
        if not bool(usable.any()):
            out.zero_()
            return losses, weights
        rows = usable.nonzero()[:, 0].to(out.device)
        found = self._part(x[rows], y[rows], [int(usable[:end].sum()) for end in ends], out)
        if found is None:
            return None
        losses[rows], weights[rows] = found
        return losses, weights

    def _read(self, x: Tensor, y: Tensor) -> Reading | None:
        model, layer_map = self._model, self._layer_map
        if self._understood:
            reading = layer_map.read(model, x, y)
            self._understood = not reading.rest
            return reading if self._understood else None
        rows, losses = rows_and_losses(model, x, y, range(len(layer_map.slots)), layer_map.slots)
        return Reading([rows], [], [], losses, 0)


def _overlapping(sizes: Sequence[int], start: int, stop: int) -> tuple[int, int, list[int]]:
    """The clients (first, last + 1) that have records in a range, and where in the range each one's records end."""
    ends = list(itertools.accumulate(sizes))
    first, last = bisect.bisect_right(ends, start), bisect.bisect_left(ends, stop) + 1
    return first, last, [min(end, stop) - start for end in ends[first:last]]
