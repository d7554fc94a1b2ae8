"""Inner products of long rows, with each other and with a few vectors, each by the route that it is told.

Untold, a rule of thumb decides, so that the same sums are taken in the same order whichever machine takes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
from torch import Tensor

from scapegoat.kernels.routes import RowProduct

BLOCK = 75
"""Rows of a block of R R^T: smaller ones waste less above the diagonal, larger ones are multiplied faster."""


def self_products(rows: Tensor, route: RowProduct | None = None) -> Tensor:
    """R R^T [s, s] for float32 rows: NumPy calls BLAS's `syrk`, half the work of the product that torch would do.

    It uses as many threads as torch does, so that results do not depend on how many a machine has. Elsewhere than on a
    processor it is torch's product. By the route `blocks` oneDNN multiplies the lower triangle block by block.
    """
    multiply = _route(rows, route)
    if multiply is not None:
        return _by_blocks(rows.detach().contiguous(), multiply)
    if rows.device.type != "cpu":
        return rows @ rows.T
    array = rows.detach().numpy()
    with _blas().limit(limits=torch.get_num_threads(), user_api="blas"):
        return torch.from_numpy(array @ array.T)


def vector_products(rows: Tensor, vectors: Tensor, route: RowProduct | None = None) -> Tensor:
    """R V^T [s, k] for float32 rows [s, p] and vectors [k, p]: torch's product, or oneDNN's by the route `blocks`."""
    multiply = _route(rows, route)
    if multiply is None:
        return rows @ vectors.T
    # With gaps between its rows a matrix takes oneDNN hundreds of times as long.
    return multiply(rows.detach().contiguous(), vectors.detach().contiguous())


def row_products() -> list[RowProduct]:
    """The routes that there are with this build of torch."""
    return ["blas"] if _onednn() is None else ["blas", "blocks"]


Multiply = Callable[[Tensor, Tensor], Tensor]


def _route(rows: Tensor, route: RowProduct | None) -> Multiply | None:
    return _onednn() if route == "blocks" and rows.device.type == "cpu" and rows.numel() else None


def _by_blocks(rows: Tensor, multiply: Multiply) -> Tensor:
    out = rows.new_empty(len(rows), len(rows))
    for start in range(0, len(rows), BLOCK):
        end = start + BLOCK
        out[start:end, :end] = multiply(rows[start:end], rows[:end])
    return out.tril().add_(out.tril(-1).T)


@functools.cache
def _onednn() -> Multiply | None:
    """A B^T by oneDNN, which uses vector units that the BLAS libraries here leave idle; None where torch lacks it.

    Torch has no public name for it, so it is believed only after it has multiplied right.
    """

    def multiply(a: Tensor, b: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")  # type: ignore[no-any-return]

    a, b = torch.arange(6.0, device="cpu").view(2, 3), torch.arange(12.0, device="cpu").view(4, 3)
    try:
        right = torch.equal(multiply(a, b), a @ b.T)
    except (AttributeError, RuntimeError, TypeError):
        return None
    return multiply if right else None


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
