"""The gradients of many clients' batches at the same parameters."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from scapegoat.models.base import FlatModel


def client_gradients(
    model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, sizes: Sequence[int], out: Tensor
) -> list[float]:
    """Write each client's gradient of its mean cross-entropy, in training mode, into its row of `out` [clients, d].

    `x` and `y` are the clients' batches one after the other, `sizes` their lengths. Returns each client's loss.
    """
    losses = []
    batches = zip(x.split(list(sizes)), y.split(list(sizes)), out, strict=True)
    for client_x, client_y, row in batches:
        losses.append(model.gradient(vector, client_x, client_y, row)[1])
    return losses
