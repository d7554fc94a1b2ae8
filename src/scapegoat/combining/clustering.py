"""Clustering as the rules use it: on few points, never failing, whatever the order of the points."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IMPORTED = 24_000_000
"""What scikit-learn's clustering takes in memory once it is imported, in floats (96 MB)."""


def hdbscan(
    points: Tensor,
    keys: Tensor,
    *,
    distances: bool,
    min_cluster_size: int,
    min_samples: int | None = None,
    single: bool = False,
) -> Tensor:
    """Cluster labels [n]; -1 for points in no cluster.

    `points` are coordinates [n, k], or with `distances` a matrix [n, n]. `min_samples` is `min_cluster_size` unless
    given; both are lowered to n if need be, and fewer than three points are one cluster. `single` allows one cluster of
    all. Equal distances are resolved in the order of `keys` [n], so that the order of the rows does not matter.
    """
    n = len(points)
    if n < 3:
        return torch.zeros(n, dtype=torch.int64)
    from sklearn.cluster import HDBSCAN

    model = HDBSCAN(
        min_cluster_size=max(2, min(min_cluster_size, n)),
        min_samples=max(1, min(min_samples or min_cluster_size, n)),
        metric="precomputed" if distances else "euclidean",
        allow_single_cluster=single,
        copy=True,
    )
    if distances:
        # Rounding may differ between (i, j) and (j, i). In float32 that is refused; in float64 the labels depend on it.
        points = (points + points.T) / 2
    order = keys.argsort(stable=True)
    ordered = points[order][:, order] if distances else points[order]
    labels = torch.empty(n, dtype=torch.int64)
    labels[order] = torch.from_numpy(model.fit_predict(ordered.double().numpy())).to(torch.int64)
    return labels


def largest_by_mean_shift(points: Tensor, keys: Tensor) -> Tensor:
    """Which points [n, k] are in the largest cluster of mean shift [n]; of equal ones, in the densest.

    The bandwidth is scikit-learn's estimate, the mean distance to the half of the points that are nearest. Where that
    is zero, the largest group of equal points is the cluster, and all points are where there are several such groups.
    """
    n = len(points)
    if n < 3:
        return torch.ones(n, dtype=torch.bool)
    from sklearn.cluster import MeanShift, estimate_bandwidth

    order = keys.argsort(stable=True)
    ordered = points[order].double().numpy()
    bandwidth = float(estimate_bandwidth(ordered, quantile=0.5))
    if bandwidth > 1e-9:
        found = torch.from_numpy(MeanShift(bandwidth=bandwidth, cluster_all=False).fit_predict(ordered)).to(torch.int64)
    else:
        _, found, counts = torch.unique((points[order] / 1e-6).round(), dim=0, return_inverse=True, return_counts=True)
        if int((counts == counts.max()).sum()) > 1:
            return torch.ones(n, dtype=torch.bool)
    labels = torch.empty(n, dtype=torch.int64)
    labels[order] = found
    sizes = torch.bincount(labels[labels >= 0])
    return labels == sizes.argmax()


def groups_on_a_line(values: NDArray[np.float64], most: int) -> tuple[list[float], list[int]]:
    """Exact k-means of numbers in ascending order: the least sum of squares for 1 .. `most` groups, and where the
    second of two groups begins (an empty list for a single number)."""
    n = len(values)
    sums, squares = (np.concatenate([[0.0], np.cumsum(v)]) for v in (values, values**2))
    ends = np.arange(n + 1)

    def spread(first: NDArray[np.int64], end: int) -> NDArray[np.float64]:
        count = np.maximum(end - first, 1)
        inside = squares[end] - squares[first] - (sums[end] - sums[first]) ** 2 / count
        return np.where(end > first, np.maximum(inside, 0.0), np.inf)

    best = np.array([0.0, *(spread(np.array([0]), end)[0] for end in range(1, n + 1))])
    totals, cut = [float(best[n])], []
    for k in range(2, min(most, n) + 1):
        trials = np.full((n + 1, n + 1), np.inf)
        for end in range(k, n + 1):
            starts = ends[k - 1 : end]
            trials[end, k - 1 : end] = best[starts] + spread(starts, end)
        best = trials.min(1)
        totals.append(float(best[n]))
        if k == 2:
            cut = [int(trials[n].argmin())]
    return totals, cut


def upper_group(values: Tensor, source: torch.Generator | None, references: int = 10, most: int = 8) -> Tensor:
    """Which numbers [n] are in the upper of two groups; none where the gap statistic sees one group only.

    The least k with Gap(k) >= Gap(k + 1) - s(k + 1) is the number of groups (Tibshirani et al. 2001), against uniform
    numbers between the least and the largest.
    """
    n, none = len(values), torch.zeros(len(values), dtype=torch.bool)
    low, high = (float(values.min()), float(values.max())) if n else (0.0, 0.0)
    draws = torch.rand(references, n, generator=source, dtype=torch.float64)
    if n < 3 or not high > low:
        return none
    ordered, order = ((values.double() - low) / (high - low)).sort(stable=True)
    totals, cut = groups_on_a_line(ordered.numpy(), most)
    logs = np.log(np.maximum(totals, 1e-12))
    made = np.log(np.maximum([groups_on_a_line(draw.sort().values.numpy(), most)[0] for draw in draws], 1e-12))
    gaps = made.mean(0) - logs
    error = made.std(0) * math.sqrt(1 + 1 / references)
    if gaps[0] >= gaps[1] - error[1]:
        return none
    none[order[cut[0] :]] = True
    return none
