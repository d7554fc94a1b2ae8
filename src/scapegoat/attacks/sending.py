"""The last steps that attacks share: bringing a gradient to the scale of the peers, and sending it."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from scapegoat.attacks.base import AttackerView, Crafted
from scapegoat.attacks.measures import Angle, Floats


def products(vectors: Tensor, others: Tensor) -> Floats:
    """Inner products [n, m] of the rows of two stacks: float32 over chunks of d, summed in float64."""
    total = torch.zeros(len(vectors), len(others), dtype=torch.float64)
    for a, b in zip(vectors.split(65536, dim=1), others.split(65536, dim=1), strict=True):
        total += a @ b.T
    return total.numpy()


def usable_peers(view: AttackerView) -> tuple[Tensor, Floats]:
    """The peers whose updates are finite [k, d], and their Gram matrix [k, k]."""
    gram = products(view.peers, view.peers)
    fine = np.isfinite(np.diag(gram))
    if fine.all():
        return view.peers, gram
    return view.peers[torch.from_numpy(fine)], gram[np.ix_(fine, fine)]


def median_norm(view: AttackerView) -> float:
    """The median norm of the peers' updates, or of the honest ones where no peer is known."""
    norms = torch.linalg.vector_norm(view.peers, dim=1)
    norms = norms[norms.isfinite()]
    if len(norms) == 0:
        norms = torch.linalg.vector_norm(view.honest(), dim=1)
    value = float(norms.double().quantile(0.5)) if len(norms) else 0.0
    return value if math.isfinite(value) else 0.0


def with_norm(update: Tensor, norm: float) -> Tensor:
    """The update at this norm; a zero update stays zero, and a norm of zero changes nothing."""
    size = float(torch.linalg.vector_norm(update))
    return update * (norm / size) if norm > 0 and size > 0 and math.isfinite(size) else update


def to_scale(view: AttackerView, gradient: Tensor) -> Tensor:
    """A gradient at the scale of what clients send: itself, or, after local epochs, at the median norm of the peers."""
    return with_norm(gradient, median_norm(view)) if view.local == "epochs" else gradient


def finished(
    view: AttackerView,
    update: Tensor,
    notes: dict[str, float] | None = None,
    masks: tuple[int, ...] = (),
) -> Crafted:
    """Every sender sends `update`; the notes say where it lies among the peers.

    `angle` is the largest to a peer and `bound` the largest between peers (radians), `norm_ratio` the norm relative to
    the peers' median, `scaled` is 1 where gradients were brought to the scale of local epochs. A gradient that is not
    finite (the model has diverged) is sent as zeros where it is not.
    """
    update = torch.nan_to_num(update, nan=0.0, posinf=0.0, neginf=0.0)
    peers, gram = usable_peers(view)
    said: dict[str, float] = {}
    if len(peers):
        square = float(products(update[None], update[None])[0, 0])
        typical = float(np.sqrt(np.median(np.maximum(np.diag(gram), 0.0))))
        measure = Angle(gram)
        cosine = -measure.worst(products(update[None], peers), np.array([square]))[0]
        said["angle"] = math.acos(cosine)
        if len(peers) > 1:
            said["bound"] = math.acos(-measure.bound())
        if typical > 0:
            said["norm_ratio"] = math.sqrt(square) / typical
    if view.local == "epochs":
        said["scaled"] = 1.0
    return Crafted(update.expand(view.senders, -1), {**said, **(notes or {})}, masks)
