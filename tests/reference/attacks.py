"""The attacks as the paper writes them: plain loops over whole vectors, angles by arccos, no algebra."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def angle(a: Vector, b: Vector) -> float:
    """The angle between two vectors; a right one if either is zero."""
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return math.pi / 2 if size == 0 else math.acos(min(1.0, max(-1.0, float(a @ b) / size)))


def largest_angle(update: Vector, peers: list[Vector]) -> float:
    """The angle to the peer that is farthest off."""
    return max(angle(update, peer) for peer in peers)


def angle_bound(peers: list[Vector]) -> float:
    """The largest angle between two peers."""
    return max(angle(a, b) for a, b in itertools.combinations(peers, 2))


def distance(a: Vector, b: Vector) -> float:
    """The Euclidean distance."""
    return float(np.linalg.norm(a - b))


def distance_bound(peers: list[Vector]) -> float:
    """The largest distance between two peers."""
    return max(distance(a, b) for a, b in itertools.combinations(peers, 2))


def turning_places(lines: list[tuple[float, float]]) -> list[float]:
    """Where the least of the lines u + t v changes: of the places where two meet, those with no line below."""
    places = set()
    for (u, v), (w, x) in itertools.combinations(lines, 2):
        if v != x:
            t = (w - u) / (v - x)
            here = u + t * v
            if all(base + t * slope >= here - 1e-9 * (1 + abs(here)) for base, slope in lines):
                places.add(t)
    return sorted(places)


def blend(attack: Vector, mask: Vector, share: float, peers: list[Vector]) -> Vector:
    """So much of the one and the rest of the other, at the median length of the peers."""
    mixed = share * attack + (1 - share) * mask
    size = float(np.linalg.norm(mixed))
    length = float(np.median([np.linalg.norm(peer) for peer in peers]))
    return mixed if size == 0 or length == 0 else mixed / size * length


def tangent(attack: Vector, mask: Vector, share: float, peers: list[Vector], parameters: Vector) -> Vector:
    """The blend in two parts: along the parameters as much as the median peer has, the rest of its length across."""
    plain = blend(attack, mask, share, peers)
    size, length = float(np.linalg.norm(plain)), float(np.linalg.norm(parameters))
    if size == 0 or length == 0:
        return plain
    cosines = [math.cos(angle(peer, parameters)) for peer in peers if np.linalg.norm(peer) > 0]
    along = float(np.median(cosines)) if cosines else 0.0
    direction = parameters / length
    across = plain - (plain @ direction) * direction
    return along * size * direction + math.sqrt(1 - along**2) * size * across / float(np.linalg.norm(across))


def malicious(attack: Vector, masks: list[Vector], chosen: tuple[int, ...], alpha: float) -> Vector:
    """alpha * g_attack + the mean of the chosen mask gradients."""
    return alpha * attack + np.mean([masks[i] for i in chosen], axis=0)


def greedy(
    attack: Vector, masks: list[Vector], peers: list[Vector], count: int, alpha: float
) -> tuple[list[int], int, float]:
    """Algorithm 1: the chosen samples, the infeasible steps, and how close the closest decision was (radians)."""
    bound = angle_bound(peers)
    chosen: list[int] = []
    infeasible = 0
    closest = math.inf
    while len(chosen) < count:
        reached = {
            k: largest_angle(malicious(attack, masks, (*chosen, k), alpha), peers)
            for k in range(len(masks))
            if k not in chosen
        }
        feasible = {k: value for k, value in reached.items() if value <= bound}
        closest = min([closest, *[abs(value - bound) for value in reached.values()]])
        if feasible:
            best = max(feasible, key=lambda k: feasible[k])
            others = [value for k, value in feasible.items() if k != best]
        else:
            infeasible += 1
            best = min(reached, key=lambda k: reached[k])
            others = [value for k, value in reached.items() if k != best]
        closest = min([closest, *[abs(value - reached[best]) for value in others]])
        chosen.append(best)
    return chosen, infeasible, closest


def exhaustive(attack: Vector, masks: list[Vector], peers: list[Vector], count: int, alpha: float) -> float | None:
    """The largest angle within the bound over all subsets of the mask samples; None if no subset keeps the bound."""
    bound = angle_bound(peers)
    reached = (
        largest_angle(malicious(attack, masks, subset, alpha), peers)
        for subset in itertools.combinations(range(len(masks)), count)
    )
    return max((value for value in reached if value <= bound), default=None)


def adaptive(attack: Vector, peers: list[Vector], trim: int, senders: int = 1, limit: int = 50) -> tuple[Vector, int]:
    """Algorithm 3; the update and the steps taken."""
    for step in range(limit):
        rows = [*peers, *[attack] * senders]
        means = [sum(angle(a, b) for j, b in enumerate(rows) if j != i) / len(rows) for i, a in enumerate(rows)]
        if means[-1] < sorted(means, reverse=True)[min(2 * trim, len(rows)) - 1]:
            return attack, step
        farthest = max(peers, key=lambda peer: angle(attack, peer))
        attack = (attack + farthest) / 2
    return attack, limit


def alie(peers: list[Vector], z: float) -> Vector:
    """Baruch et al. 2019, Algorithm 3: mean minus z standard deviations, coordinate by coordinate."""
    out = np.empty_like(peers[0])
    for c in range(len(out)):
        column = [float(peer[c]) for peer in peers]
        mean = sum(column) / len(column)
        out[c] = mean - z * math.sqrt(sum((value - mean) ** 2 for value in column) / len(column))
    return out
