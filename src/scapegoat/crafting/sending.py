"""What attacks share at both ends: the peers they are shown, and the update they send."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.crafting.contract import AttackerView, Crafted
from scapegoat.crafting.measures import Floats, whereabouts
from scapegoat.narrow_rows import NarrowRows
from scapegoat.split_rows import Held


@dataclass(frozen=True)
class Peers:
    """The finite ones among the updates that an attacker is shown [k, d], and their inner products [k, k].

    `places` [k] says which of the view's peers they are.
    """

    rows: Tensor | NarrowRows
    gram: Floats
    median_norm: float
    places: tuple[int, ...]

    @staticmethod
    def of(view: AttackerView) -> Peers:
        """The peers of a round; where there is none, the norm of what the attacker would honestly send stands in."""
        rows: Tensor | NarrowRows = view.peers
        if view.peers.dtype == torch.bfloat16:
            rows = NarrowRows(view.peers)
        gram = geometry.gram(rows).numpy()
        fine = np.isfinite(np.diag(gram))
        if not fine.all():
            places = np.flatnonzero(fine)
            some = torch.from_numpy(places)
            rows = rows[some.to(rows.device)] if isinstance(rows, Tensor) else rows.some(places.tolist())
            gram = gram[np.ix_(fine, fine)]
        squares = np.diag(gram) if len(gram) else geometry.squared_norms(view.honest()).numpy()
        squares = squares[np.isfinite(squares)]
        median_norm = float(np.median(np.sqrt(squares))) if len(squares) else 0.0
        return Peers(rows, gram, median_norm, tuple(np.flatnonzero(fine).tolist()))

    def __len__(self) -> int:
        return len(self.rows)

    def mean(self) -> Tensor:
        """The mean of the peers [d]."""
        return self.rows.mean(0) if isinstance(self.rows, Tensor) else torch.cat(self.rows.each(_column_means))

    def spread(self) -> Tensor:
        """Their standard deviation, coordinate by coordinate [d]."""
        if isinstance(self.rows, Tensor):
            return self.rows.std(0, correction=0)
        return torch.cat(self.rows.each(_column_spreads))

    def weighted(self, weights: Floats) -> Tensor:
        """Their sum with these weights [k]: [d]."""
        factors = torch.from_numpy(weights).float().to(self.rows.device)
        if isinstance(self.rows, Tensor):
            return factors @ self.rows
        return torch.cat(self.rows.each(functools.partial(_weighted_columns, factors)))

    def dot(self, vector: Tensor) -> Floats:
        """Inner products with a vector [k]."""
        return np.asarray(geometry.products(vector[None], self.rows).numpy()[0], dtype=np.float64)


def _column_means(first: int, held: Held) -> Tensor:
    assert isinstance(held, Tensor)
    return held.mean(0)


def _column_spreads(first: int, held: Held) -> Tensor:
    assert isinstance(held, Tensor)
    return held.std(0, correction=0)


def _weighted_columns(factors: Tensor, first: int, held: Held) -> Tensor:
    assert isinstance(held, Tensor)
    return factors @ held


def inner(a: Tensor, b: Tensor) -> float:
    """The inner product of two vectors."""
    return float(geometry.products(a[None], b[None])[0, 0])


def with_norm(update: Tensor, norm: float) -> Tensor:
    """The update at this norm; a zero update stays zero, and a norm of zero changes nothing."""
    size = math.sqrt(inner(update, update))
    return update * (norm / size) if norm > 0 and size > 0 and math.isfinite(size) else update


def to_scale(view: AttackerView, peers: Peers, gradient: Tensor) -> Tensor:
    """A gradient at the scale of what clients send: itself, or, after local epochs, at the median norm of the peers."""
    return with_norm(gradient, peers.median_norm) if view.local == "epochs" else gradient


def blended(view: AttackerView, peers: Peers, share: float) -> Tensor:
    """share * g_attack + (1 - share) * g_mask over all mask samples, at the median norm of the peers."""
    attack = view.gradients.mean(view.targets.x, view.wrong_labels)
    mask = view.gradients.mean(view.mask.x, view.mask.y)
    return with_norm(mask * (1 - share) + attack * share, peers.median_norm)


def finished(
    view: AttackerView,
    peers: Peers,
    update: Tensor,
    notes: dict[str, float],
    masks: tuple[int, ...] = (),
    dots: Floats | None = None,
) -> Crafted:
    """Every sender sends `update`; the notes also say where it lies among the peers (`measures.whereabouts`).

    `scaled` is 1 where gradients were brought to the scale of updates after local epochs. Of a gradient that is not
    finite (the model has diverged), the entries that are not are sent as zeros. `dots` are the inner products with the
    peers [k], where they are known.
    """
    square = inner(update, update)
    if not math.isfinite(square):
        update = torch.nan_to_num(update, nan=0.0, posinf=0.0, neginf=0.0)
        square, dots = inner(update, update), None
    dots = peers.dot(update) if dots is None else dots
    said = whereabouts(peers.gram, peers.median_norm, dots[None], np.array([square]))
    if view.local == "epochs":
        said["scaled"] = 1.0
    return Crafted(update.expand(view.senders, -1), {**said, **notes}, masks)
