"""How far out an update lies among its peers, told from inner products alone.

Greater is farther for every measure, so that one search serves them all: `angle` is the paper's, `norm` the Euclidean
distance that AGREvader bounds.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ALL_PAIRS = 256
"""Peers up to which every two of them are compared."""


class Measure(Protocol):
    """How far out updates lie; `tolerance` is what rounding may add to it."""

    tolerance: float

    def worst(self, dots: Floats, squares: Floats) -> Floats:
        """How far n updates lie from some peer, by their inner products `dots` [n, k] and squared norms [n]."""

    def bound(self) -> float:
        """How far the peers are from each other at most."""

    def breakpoints(self, line: Line) -> Floats:
        """The places on a line where the bound is met, a peer's distance turns, or another peer is the farthest."""


class Line:
    """Updates base + t * direction, known by their inner products with k peers."""

    def __init__(
        self, base: Floats, direction: Floats, base_square: float, cross: float, direction_square: float
    ) -> None:
        """`base` and `direction` [k] are inner products with the peers."""
        self.base, self.direction = base, direction
        self.base_square, self.cross, self.direction_square = base_square, cross, direction_square

    def dots(self, t: Floats) -> Floats:
        """Inner products with the peers [n, k]."""
        return self.base + t[:, None] * self.direction

    def squares(self, t: Floats) -> Floats:
        """Squared norms [n]."""
        return np.maximum(self.base_square + t * (2 * self.cross + t * self.direction_square), 0.0)


class Angle:
    """Minus the smallest cosine: the largest angle, without the arc cosine. A zero vector is at right angles to all."""

    tolerance = 1e-11

    def __init__(self, peer_gram: Floats) -> None:
        self.gram = peer_gram
        norms = np.sqrt(np.maximum(np.diag(peer_gram), 0.0))
        self.inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)

    def worst(self, dots: Floats, squares: Floats) -> Floats:
        """Minus the smallest cosine with a peer."""
        norms = np.sqrt(squares)
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        cosines: Floats = np.clip((dots * self.inverse).min(axis=1) * inverse, -1.0, 1.0)
        return -cosines

    def bound(self) -> float:
        """Minus the smallest cosine between two peers."""
        cosines = self.gram * self.inverse[:, None] * self.inverse
        return float(-np.clip(cosines[~np.eye(len(cosines), dtype=bool)].min(), -1.0, 1.0))

    def breakpoints(self, line: Line) -> Floats:
        """Roots of (u + t v)^2 = cos^2 (c + 2bt + at^2), where each cosine turns, and where two of them meet."""
        u, v = line.base * self.inverse, line.direction * self.inverse
        a, b, c = line.direction_square, line.cross, line.base_square
        square = self.bound() ** 2
        meet = quadratic_roots(v * v - square * a, 2 * (u * v - square * b), u * u - square * c)
        turn = _ratio(u * b - v * c, v * b - u * a)
        return np.concatenate([meet, turn, _crossings(u, v)])


class Distance:
    """The largest squared Euclidean distance to a peer."""

    def __init__(self, peer_gram: Floats) -> None:
        self.gram = peer_gram
        self.peer_squares = np.diag(peer_gram)
        self.tolerance = 1e-11 * float(self.peer_squares.max(initial=0.0))

    def worst(self, dots: Floats, squares: Floats) -> Floats:
        """The largest squared distance to a peer."""
        farthest: Floats = squares + (self.peer_squares - 2 * dots).max(axis=1)
        return farthest

    def bound(self) -> float:
        """The largest squared distance between two peers."""
        return float((self.peer_squares[:, None] + self.peer_squares - 2 * self.gram).max())

    def breakpoints(self, line: Line) -> Floats:
        """Roots of |base + t direction - peer|^2 = bound, where each distance turns, and where two of them meet."""
        a, half = line.direction_square, line.cross - line.direction
        c = line.base_square - 2 * line.base + self.peer_squares - self.bound()
        meet = quadratic_roots(np.full_like(half, a), 2 * half, c)
        turn = _ratio(-half, np.full_like(half, a))
        return np.concatenate([meet, turn, _crossings(2 * line.base - self.peer_squares, 2 * line.direction)])


def whereabouts(peer_gram: Floats, median_norm: float, dots: Floats, squares: Floats) -> dict[str, float]:
    """Where n updates lie among k peers, by their inner products `dots` [n, k] and squared norms [n].

    `angle` is the largest to a peer and `bound` the largest between peers (radians), `norm_ratio` the largest norm
    relative to the peers' median.
    """
    said: dict[str, float] = {}
    if len(peer_gram):
        measure = Angle(peer_gram)
        said["angle"] = math.acos(-measure.worst(dots, squares).max())
        if len(peer_gram) > 1:
            said["bound"] = math.acos(-measure.bound())
    if median_norm > 0:
        said["norm_ratio"] = math.sqrt(squares.max()) / median_norm
    return said


def whereabouts_in(gram: Floats, peers: int) -> dict[str, float]:
    """Where the last rows of a Gram matrix lie among the first `peers`; rows that are not finite are left out."""
    fine = np.isfinite(np.diag(gram))
    shown, sent = np.flatnonzero(fine[:peers]), peers + np.flatnonzero(fine[peers:])
    if not len(shown) or not len(sent):
        return {}
    squares = np.diag(gram)
    return whereabouts(
        gram[np.ix_(shown, shown)], float(np.median(np.sqrt(squares[shown]))), gram[np.ix_(sent, shown)], squares[sent]
    )


def _crossings(u: Floats, v: Floats) -> Floats:
    """Where the least of the lines u_i + t v_i is another one than before; of few lines, where any two of them meet.

    Only the former can be an optimum. Of many lines some pair meets so near to it that rounding cannot tell them apart,
    and would be taken for it: which of the two ways is gone must not change for federations of usual sizes.
    """
    if len(u) > ALL_PAIRS:
        return envelope_crossings(u, v)
    i, j = np.triu_indices(len(u), 1)
    return _ratio(u[j] - u[i], v[i] - v[j])


def envelope_crossings(u: Floats, v: Floats) -> Floats:
    """The places t at which the least of k lines u_i + t v_i changes, ascending; O(k log k), fewer than k of them."""
    order = np.lexsort((u, -v))  # the steepest is the least on the far left; of parallel ones the lower
    lines = np.stack([u, v])[:, order].T.tolist()
    least: list[tuple[float, float]] = []
    places: list[float] = []
    for base, slope in lines:
        if least and least[-1][1] == slope:
            continue
        place = -math.inf
        while least:
            place = (base - least[-1][0]) / (least[-1][1] - slope)
            if not places or place > places[-1]:
                break
            # It is below the last one before that becomes the least.
            least.pop()
            places.pop()
        if least:
            places.append(place)
        least.append((base, slope))
    return np.array(places)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(top / bottom, dtype=np.float64)


def quadratic_roots(a: Floats, b: Floats, c: Floats) -> Floats:
    """Real roots of a t^2 + b t + c, without cancellation; NaN or Inf where there is none."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # A root that touches may have a discriminant just below zero.
        discriminant = b * b - 4 * a * c
        touching = (discriminant < 0) & (discriminant > -1e-12 * b * b)
        root = np.sqrt(np.where(touching, 0.0, discriminant))
        q = -0.5 * (b + np.copysign(root, b))
        return np.concatenate([q / a, c / q])
