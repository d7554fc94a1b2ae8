"""Rules that other libraries have, as their papers write them: float64, plain loops, exhaustive where possible."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.reference.aggregation import Answer, Vector, angle, clip, dot, mean_of, median_norm, norm


def arc(rows: Sequence[Vector], f: int) -> Answer:
    """Allouah et al. 2025, Algorithm 2: the floor(2f/n (n - f)) longest are clipped to the norm of the next."""
    n = len(rows)
    descending = sorted((norm(row) for row in rows), reverse=True)
    bound = descending[math.floor(2 * f * (n - f) / n)]
    return mean_of(clip(rows, bound), range(n)), set(range(n))


def diameter(rows: Sequence[Vector], chosen: Sequence[int]) -> float:
    return max((norm(rows[i] - rows[j]) for i, j in itertools.combinations(chosen, 2)), default=0.0)


def mda(rows: Sequence[Vector], f: int) -> tuple[Answer, list[float]]:
    """El Mhamdi et al. 2020, over all subsets; the answer, and how far apart what decides it is.

    Of subsets with the smallest diameter, the one that leaves out the remotest rows, by the sum of their distances.
    """
    n = len(rows)
    distances = [[norm(a - b) for b in rows] for a in rows]
    remote = sorted(range(n), key=lambda i: -sum(distances[i]))
    best: tuple[float, list[int]] = (math.inf, [])
    for out in itertools.combinations(range(n), f):
        kept = [i for i in range(n) if i not in out]
        widest = max((distances[i][j] for i, j in itertools.combinations(kept, 2)), default=0.0)
        best = min(best, (widest, sorted(remote.index(i) for i in out)))
    out = {remote[place] for place in best[1]}
    kept = [i for i in range(n) if i not in out]
    return (mean_of(rows, kept), set(kept)), sorted(sum(row) for row in distances)


class FoolsGold:
    """Fung et al. 2020, Algorithm 1, over rounds."""

    def __init__(self, confidence: float = 1.0) -> None:
        self.confidence = confidence
        self.sums: dict[int, Vector] = {}

    def round(self, rows: Sequence[Vector], ids: Sequence[int]) -> Answer:
        n = len(rows)
        for row, client in zip(rows, ids, strict=True):
            self.sums[client] = self.sums.get(client, np.zeros_like(row)) + row
        cs = [
            [0.0 if i == j else math.cos(angle(self.sums[a], self.sums[b])) for j, b in enumerate(ids)]
            for i, a in enumerate(ids)
        ]
        v = [max(line) for line in cs]
        for i in range(n):
            for j in range(n):
                if v[j] > v[i]:
                    cs[i][j] *= v[i] / v[j]
        rate = [1 - max(line) for line in cs]
        most = max(rate)
        rates = []
        for value in rate:
            share = min(value / most, 0.99) if most > 0 else 0.0
            logit = math.log(share / (1 - share)) + 0.5 if share > 0 else -math.inf
            rates.append(min(max(self.confidence * logit, 0.0), 1.0))
        total = sum((r * row for r, row in zip(rates, rows, strict=True)), start=np.zeros_like(rows[0]))
        return total / n, {i for i in range(n) if rates[i] > 0}


def signguard(rows: Sequence[Vector], coordinates: Sequence[int], shortest: float, longest: float) -> Answer:
    """Xu et al. 2022, Algorithm 2, with scikit-learn's mean shift."""
    from sklearn.cluster import MeanShift, estimate_bandwidth

    n, middle = len(rows), median_norm(rows)
    fitting = {i for i in range(n) if shortest * middle <= norm(rows[i]) <= longest * middle}
    shares = np.array(
        [[sum(np.sign(row[c]) == s for c in coordinates) / len(coordinates) for s in (1, 0, -1)] for row in rows]
    )
    alike = set(range(n))
    if n > 2:
        width = estimate_bandwidth(shares, quantile=0.5)
        if width > 1e-9:
            labels = list(MeanShift(bandwidth=width, cluster_all=False).fit_predict(shares))
        else:
            labels = [next(j for j in range(n) if np.allclose(shares[i], shares[j])) for i in range(n)]
        largest = max(sorted(set(labels) - {-1}), key=labels.count)
        rivals = [label for label in set(labels) if labels.count(label) == labels.count(largest)]
        if width > 1e-9 or len(rivals) == 1:
            alike = {i for i in range(n) if labels[i] == largest}
    kept = fitting & alike or fitting
    return mean_of(clip(rows, middle), sorted(kept)) if kept else np.zeros_like(rows[0]), kept


def lbfgs(steps: Sequence[Vector], changes: Sequence[Vector], v: Vector) -> tuple[Vector, float]:
    """Byrd et al. 1994, (3.13), with full matrices; and the condition number of the one that is inverted."""
    if not steps:
        return np.zeros_like(v), 1.0
    s, y = np.array(steps).T, np.array(changes).T
    sigma = dot(steps[-1], changes[-1]) / dot(steps[-1], steps[-1])
    sy = s.T @ y
    lower = np.tril(sy, -1)
    matrix = np.block([[sigma * s.T @ s, lower], [lower.T, -np.diag(np.diag(sy))]])
    middle = np.linalg.solve(matrix, np.concatenate([sigma * s.T @ v, y.T @ v]))
    return sigma * v - np.hstack([sigma * s, y]) @ middle, float(np.linalg.cond(matrix))


class FLDetector:
    """Zhang et al. 2022, Algorithm 1, over rounds of the same clients: scores before anybody is left out."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.before: list[Vector] = []
        self.parameters: Vector | None = None
        self.mean: Vector | None = None
        self.steps: list[Vector] = []
        self.changes: list[Vector] = []
        self.history: list[list[float]] = []
        self.condition = 1.0

    def round(self, rows: Sequence[Vector], parameters: Vector) -> list[float]:
        """Each client's score after this round; nothing in the first."""
        mean = mean_of(rows, range(len(rows)))
        if self.parameters is not None and self.mean is not None:
            step = parameters - self.parameters
            product, self.condition = lbfgs(self.steps, self.changes, step)
            far = [norm(last + product - row) for last, row in zip(self.before, rows, strict=True)]
            self.history.append([d / (sum(far) / len(far)) for d in far])
            self.steps = [*self.steps, step][-self.window :]
            self.changes = [*self.changes, mean - self.mean][-self.window :]
        self.before, self.parameters, self.mean = list(rows), parameters, mean
        recent = self.history[-self.window :]
        return [float(np.mean([line[i] for line in recent])) for i in range(len(rows))] if recent else []


def best_split(values: Sequence[float], k: int) -> float:
    """The least sum of squares of k groups of numbers, over all ways to cut their order."""
    ordered = sorted(values)
    best = math.inf
    for cuts in itertools.combinations(range(1, len(ordered)), k - 1):
        parts = [ordered[a:b] for a, b in zip((0, *cuts), (*cuts, len(ordered)), strict=True)]
        best = min(best, sum(float(np.var(part)) * len(part) for part in parts))
    return best


def most_outlying(peers: NDArray[np.float64]) -> list[float]:
    """Karimireddy et al. 2022, Appendix: |<z, g_k>| of every peer, z the first principal direction."""
    z = np.linalg.svd(peers - peers.mean(0), full_matrices=False)[2][0]
    return [abs(dot(row, z)) for row in peers]
