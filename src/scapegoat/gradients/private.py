"""The update of record-level DP-SGD: a sum of clipped gradients, Gaussian noise, a divisor that no record moves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from scapegoat.errors import InputError
from scapegoat.gradients.clipped import ClippedGradients, clipped_gradients
from scapegoat.kernels.gaussian import GaussianStream, key_from
from scapegoat.modelling.flat_model import FlatModel


def private_gradients(
    model: FlatModel,
    vector: Tensor,
    x: Tensor,
    y: Tensor,
    sizes: Sequence[int],
    *,
    clip: float,
    noise: float,
    expected: Sequence[float],
    sources: Sequence[torch.Generator],
    out: Tensor,
) -> ClippedGradients:
    """Write (sum of clipped gradients + N(0, (noise · clip)² I)) / expected for each client to its row of `out`.

    `expected` is each client's expected batch size, not the size of this batch, which Poisson sampling makes a secret;
    `sources` are the clients' generators, one each (`scapegoat.randomness.generator(seed, purpose, round, client)`). An
    empty batch gives noise alone. `scapegoat.accounting.record_epsilons` says what that is worth. The noise is float32,
    which does not withstand an attack on the low bits of what is sent; it is as secret as the generators' seeds.

    >>> from scapegoat.modelling.flat_model import FlatModel
    >>> from scapegoat.randomness import generator
    >>> model = FlatModel(torch.nn.Linear(400, 100), (400,), 100)
    >>> out, x, y = torch.empty(1, model.d), torch.rand(8, 400), torch.zeros(8, dtype=torch.int64)
    >>> sources = [generator(0, "dp_sgd", 0, 0)]
    >>> start = torch.zeros(model.d)
    >>> _ = private_gradients(
    ...     model, start, x, y, [8], clip=0.5, noise=2.0, expected=[10], sources=sources, out=out
    ... )
    >>> round(float(out.std()), 2)
    0.1
    """
    if not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"noise is {noise:g}; it must be 0 or a positive number")
    for size in expected:
        if not (math.isfinite(size) and size > 0):
            raise InputError(f"the expected batch size is {size:g}; it must be a positive number")
    found = clipped_gradients(model, vector, x, y, sizes, clip, out)
    for row, size, source in zip(out, expected, sources, strict=True):
        if noise:
            GaussianStream(key_from(source)).add_to(row, noise * clip, size)
        else:
            row.div_(size)
    return found
