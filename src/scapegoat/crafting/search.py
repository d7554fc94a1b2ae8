"""Greedy choice of mask samples and the exact choice of a scaling factor, on inner products alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scapegoat.crafting.measures import Floats, Line, Measure


@dataclass(frozen=True)
class Products:
    """Inner products between the attack gradient, s mask gradients and k peers."""

    attack_square: float
    attack_peers: Floats  # [k]
    attack_masks: Floats  # [s]
    masks_masks: Floats  # [s, s]
    masks_peers: Floats  # [s, k]

    def finite(self) -> bool:
        """Whether every product is a finite number."""
        parts = (self.attack_square, self.attack_peers, self.attack_masks, self.masks_masks, self.masks_peers)
        return all(bool(np.isfinite(part).all()) for part in parts)

    def line(self, chosen: Sequence[int]) -> Line:
        """g_mask + alpha * g_attack for the mean of the chosen mask gradients."""
        picked = np.asarray(chosen, dtype=np.intp)
        return Line(
            base=self.masks_peers[picked].mean(axis=0),
            direction=self.attack_peers,
            base_square=float(self.masks_masks[np.ix_(picked, picked)].mean()),
            cross=float(self.attack_masks[picked].mean()),
            direction_square=self.attack_square,
        )


@dataclass(frozen=True)
class Selection:
    """Mask samples in the order they were chosen, and how many of the steps had no sample within the bound."""

    chosen: list[int]
    infeasible_steps: int


def greedy(products: Products, measure: Measure, count: int, alpha: float) -> Selection:
    """Algorithm 1: add the mask sample that takes the update farthest out without passing the bound.

    The update is alpha * g_attack + the mean of the chosen mask gradients. Where no sample keeps the bound, the one
    that passes it least is taken and the step counted. A step costs O(s * k).
    """
    limit = measure.bound() + measure.tolerance
    # Column by column, so that the minimum over the few peers of a sample runs along memory.
    masks_peers = np.asfortranarray(products.masks_peers)
    masks = len(masks_peers)
    own_squares = np.diag(products.masks_masks)
    sum_peers = np.zeros(masks_peers.shape[1])
    sum_attack = sum_square = 0.0
    sum_masks = np.zeros(masks)
    free = np.ones(masks, dtype=bool)
    chosen: list[int] = []
    infeasible = 0
    for n in range(1, count + 1):
        dots = alpha * products.attack_peers + (sum_peers + masks_peers) / n
        squares = (
            alpha * alpha * products.attack_square
            + (2 * alpha / n) * (sum_attack + products.attack_masks)
            + (sum_square + 2 * sum_masks + own_squares) / (n * n)
        )
        worst = measure.worst(dots, np.maximum(squares, 0.0))
        within = free & (worst <= limit)
        if within.any():
            best = int(np.argmax(np.where(within, worst, -np.inf)))
        else:
            infeasible += 1
            best = int(np.argmin(np.where(free, worst, np.inf)))
        chosen.append(best)
        free[best] = False
        sum_square += float(2 * sum_masks[best] + own_squares[best])
        sum_attack += float(products.attack_masks[best])
        sum_peers = sum_peers + masks_peers[best]
        sum_masks = sum_masks + products.masks_masks[best]
    return Selection(chosen, infeasible)


@dataclass(frozen=True)
class Step:
    """A place on a line, how far out it lies, and whether that is within the bound."""

    t: float
    worst: float
    feasible: bool


AT_ONCE = 1 << 20
"""Inner products that are held at a time (8 MB): many peers have very many breakpoints."""

ALPHA_MIN = 1e-6
"""The open end of (0, alpha_max]: a factor below it would not be an attack."""


def farthest_within(line: Line, measure: Measure, low: float, high: float) -> Step:
    """The t in [low, high] that lies farthest out within the bound (Eq. 4), exact: the optimum is a breakpoint.

    Of equally far places the greatest t is taken: more attack for the same angle. If none is within the bound, the t
    that passes it least.
    """
    t, worst = _evaluate(line, measure, low, high)
    within = worst <= measure.bound() + measure.tolerance
    if not within.any():
        return _least(t, worst)
    t, worst = t[within], worst[within]
    far = worst >= worst.max() - measure.tolerance
    best = int(np.argmax(np.where(far, t, -np.inf)))
    return Step(float(t[best]), float(worst[best]), True)


def greatest_within(line: Line, measure: Measure, low: float, high: float) -> Step:
    """The greatest t in [low, high] within the bound, exact; if there is none, the t that passes it least."""
    t, worst = _evaluate(line, measure, low, high)
    within = worst <= measure.bound() + measure.tolerance
    if not within.any():
        return _least(t, worst)
    best = int(np.argmax(np.where(within, t, -np.inf)))
    return Step(float(t[best]), float(worst[best]), True)


def _evaluate(line: Line, measure: Measure, low: float, high: float) -> tuple[Floats, Floats]:
    inner = measure.breakpoints(line)
    t = np.concatenate([[low, high], inner[np.isfinite(inner) & (inner > low) & (inner < high)]])
    size = max(1, AT_ONCE // max(len(line.base), 1))
    blocks = [t[start : start + size] for start in range(0, len(t), size)]
    return t, np.concatenate([measure.worst(line.dots(block), line.squares(block)) for block in blocks])


def _least(t: Floats, worst: Floats) -> Step:
    best = int(np.argmin(worst))
    return Step(float(t[best]), float(worst[best]), False)
