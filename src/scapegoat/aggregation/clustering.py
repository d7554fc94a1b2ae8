"""HDBSCAN as the rules use it: on few points, never failing, with a label for every point."""

from __future__ import annotations

import torch
from torch import Tensor


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
    order = keys.argsort(stable=True)
    ordered = points[order][:, order] if distances else points[order]
    labels = torch.empty(n, dtype=torch.int64)
    labels[order] = torch.from_numpy(model.fit_predict(ordered.double().numpy())).to(torch.int64)
    return labels
