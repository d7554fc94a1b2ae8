"""The two matrix products that decide what crafting costs, each by its fastest route on a CPU."""

from __future__ import annotations

import functools

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
from torch import Tensor

DENSEST = 0.15
"""Greatest share of entries that are not zero for which looking rows up beats the dense product (measured: 0.2)."""

FEWEST_FEATURES = 64
"""Narrower inputs have nothing to save."""

STRIP = 64
"""Rows of a weight that are transposed at a time, so that the strip stays in cache while rows are looked up in it."""


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def self_products(rows: Tensor) -> Tensor:
    """R R^T [s, s] for float32 rows: NumPy calls BLAS's `syrk`, half the work of the product that torch would do.

    It uses as many threads as torch does, so that results do not depend on how many a machine has.
    """
    array = rows.detach().numpy()
    with _blas().limit(limits=torch.get_num_threads(), user_api="blas"):
        return torch.from_numpy(array @ array.T)


class SparseRows:
    """Inputs [s, f] of which most are zero, such as binary records, for products with a weight [o, f]."""

    def __init__(self, dense: Tensor) -> None:
        self.dense = dense
        samples, features = dense.shape
        flat = np.flatnonzero(dense.numpy() != 0)
        self._columns = torch.from_numpy((flat % features).astype(np.int32))
        self._starts = torch.from_numpy(np.searchsorted(flat, np.arange(samples + 1) * features).astype(np.int32))
        values = dense.reshape(-1)[torch.from_numpy(flat)]
        self._values = None if bool((values == 1).all()) else values

    @staticmethod
    def of(dense: Tensor) -> SparseRows | None:
        """The rows, if they are sparse enough to gain from it."""
        if dense.dim() != 2 or dense.dtype != torch.float32 or dense.shape[1] < FEWEST_FEATURES:
            return None
        if not dense.is_contiguous() or np.count_nonzero(dense.numpy()) > DENSEST * dense.numel():
            return None
        return SparseRows(dense)

    def times(self, weight: Tensor) -> Tensor:
        """A W^T [s, o]: the sum of the columns of W that each row names."""
        result = torch.empty(len(self.dense), len(weight))
        strip = torch.empty(weight.shape[1], min(STRIP, len(weight)))
        for start in range(0, len(weight), STRIP):
            part = weight[start : start + STRIP]
            here = strip[:, : len(part)] if len(part) < STRIP else strip
            here.copy_(part.T)
            result[:, start : start + STRIP] = _sums(self._columns, self._starts, self._values, here)
        return result

    def weight_gradient(self, delta: Tensor, rows: slice, out: Tensor) -> None:
        """Write Delta^T A over some rows into `out` [o, f]: column j sums the Delta of the rows that name j."""
        names, starts, values = self._transposed(rows)
        for start in range(0, len(out), STRIP):
            strip = delta[:, start : start + STRIP].contiguous()
            out[start : start + STRIP] = _sums(names, starts, values, strip).T

    def _transposed(self, rows: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        first, last, _ = rows.indices(len(self.dense))
        begin, end = int(self._starts[first]), int(self._starts[last])
        columns = self._columns[begin:end].numpy()
        order = torch.from_numpy(np.argsort(columns, kind="stable"))
        owner = np.repeat(np.arange(last - first, dtype=np.int32), self._starts[first : last + 1].diff().numpy())
        counts = np.bincount(columns, minlength=self.dense.shape[1])
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        values = None if self._values is None else self._values[begin:end][order]
        return torch.from_numpy(owner)[order], torch.from_numpy(starts), values


def _sums(names: Tensor, starts: Tensor, values: Tensor | None, table: Tensor) -> Tensor:
    """For each bag of row names, the sum of those rows of the table (times their values)."""
    return F.embedding_bag(names, table, starts, mode="sum", include_last_offset=True, per_sample_weights=values)
