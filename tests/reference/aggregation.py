"""Aggregation rules as their papers write them: float64, one loop a line of pseudo-code, nothing clever.

Each takes the rows as a list of NumPy float64 vectors and gives (update, kept), kept being the set of rows that
entered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from scapegoat.randomness import derive

Vector = NDArray[np.float64]
Answer = tuple[Vector, set[int]]


def dot(x: Vector, y: Vector) -> float:
    return math.fsum(float(a) * float(b) for a, b in zip(x, y, strict=True))


def norm(x: Vector) -> float:
    return math.sqrt(dot(x, x))


def angle(x: Vector, y: Vector) -> float:
    """The angle between two vectors; for nearly parallel ones from their difference, where arccos is blind."""
    if norm(x) == 0 or norm(y) == 0:
        return math.pi / 2
    u, v = x / norm(x), y / norm(y)
    return 2 * math.atan2(norm(u - v), norm(u + v))


def mean_of(rows: Sequence[Vector], chosen: Sequence[int]) -> Vector:
    total = np.zeros_like(rows[0])
    for i in chosen:
        total = total + rows[i]
    return total / len(chosen)


def mean_angles(rows: Sequence[Vector]) -> list[float]:
    """Steps I and II of ATM."""
    n = len(rows)
    theta = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1, n):
            theta[i][j] = theta[j][i] = angle(rows[i], rows[j])
    return [sum(theta[k]) / (n - 1) if n > 1 else 0.0 for k in range(n)]


def fedavg(rows: Sequence[Vector], weights: Sequence[float] | None = None) -> Answer:
    weights = [1.0] * len(rows) if weights is None else weights
    total = np.zeros_like(rows[0])
    for w, row in zip(weights, rows, strict=True):
        total = total + w * row
    return total / sum(weights), {i for i, w in enumerate(weights) if w > 0}


def atm(rows: Sequence[Vector], b: int) -> Answer:
    """Steps III and IV: ascending by mean angle, without the last 2b."""
    score = mean_angles(rows)
    order = sorted(range(len(rows)), key=lambda k: score[k])
    kept = order[: len(rows) - 2 * b]
    return mean_of(rows, kept), set(kept)


def median(rows: Sequence[Vector]) -> Answer:
    out = np.empty_like(rows[0])
    for c in range(len(out)):
        column = sorted(float(row[c]) for row in rows)
        n = len(column)
        out[c] = column[n // 2] if n % 2 else (column[n // 2 - 1] + column[n // 2]) / 2
    return out, set(range(len(rows)))


def trimmed_mean(rows: Sequence[Vector], b: int) -> Answer:
    out = np.empty_like(rows[0])
    for c in range(len(out)):
        column = sorted(float(row[c]) for row in rows)
        middle = column[b : len(column) - b]
        out[c] = sum(middle) / len(middle)
    return out, set(range(len(rows)))


def median_norm(rows: Sequence[Vector]) -> float:
    return float(np.median([norm(row) for row in rows]))


def clip(rows: Sequence[Vector], bound: float) -> list[Vector]:
    return [row * (bound / norm(row)) if norm(row) > bound else row for row in rows]


def norm_clipping(rows: Sequence[Vector], bound: float | None = None) -> Answer:
    clipped = clip(rows, median_norm(rows) if bound is None else bound)
    return mean_of(clipped, range(len(rows))), set(range(len(rows)))


def clipped_atm(rows: Sequence[Vector], b: int) -> Answer:
    return atm(clip(rows, median_norm(rows)), b)


class MemoryATM:
    """`memory_atm` over rounds, one running direction a client id."""

    def __init__(self, b: int, beta: float = 0.9) -> None:
        self.b, self.beta = b, beta
        self.average: dict[int, Vector] = {}
        self.count: dict[int, int] = {}

    def round(self, rows: Sequence[Vector], ids: Sequence[int]) -> Answer:
        clipped = clip(rows, median_norm(rows))
        for client, row in zip(ids, clipped, strict=True):
            old = self.average.get(client, np.zeros_like(row))
            self.average[client] = self.beta * old + (1 - self.beta) * row
            self.count[client] = self.count.get(client, 0) + 1
        directions = [self.average[client] / (1 - self.beta ** self.count[client]) for client in ids]
        score = mean_angles(directions)
        kept = sorted(range(len(rows)), key=lambda k: score[k])[: len(rows) - 2 * self.b]
        return mean_of(clipped, kept), set(kept)


class ReputationATM:
    """`reputation_atm` over rounds: every past residual is kept, and every sum made from its definition."""

    def __init__(
        self,
        b: int,
        beta: float = 0.9,
        hold: float = 0.9,
        doubt: float = 2.0,
        agreement: float = 1.0,
        probation: int = 10,
        remember: int = 100,
        patience: int = 15,
    ) -> None:
        self.b, self.beta, self.hold, self.doubt, self.agreement = b, beta, hold, doubt, agreement
        self.probation, self.remember, self.patience = probation, remember, patience
        self.left_out: dict[int, int] = {}
        self.closest = math.inf
        self.remains: dict[int, list[Vector]] = {}
        self.suspicions: dict[int, list[float]] = {}
        self.last_seen: dict[int, int] = {}
        self.rounds = 0

    def round(self, rows: Sequence[Vector], ids: Sequence[int]) -> Answer:
        bound = median_norm(rows)
        clipped = clip(rows, bound)
        mean = sum(clipped) / len(clipped)
        agreements = []
        for client, row in zip(ids, clipped, strict=True):
            agreements.append(self.agreement_with_the_past(client, row - mean))
            self.remains.setdefault(client, []).append((row - mean) / bound)
        agreed = deviations(agreements, uneven=0.05)
        now = deviations(mean_angles(rows))
        self.closest = min(abs(z - 5) for z in deviations(mean_angles(rows), limit=math.inf))
        steady = deviations([self.steadiness(client) for client in ids], uneven=0.05)
        for client, x in zip(ids, steady, strict=True):
            self.suspicions.setdefault(client, []).append(max(x, 0.0))
        usual = float(np.median([len(self.suspicions[client]) for client in ids]))
        self.score = [self.standing(client, x, a, usual) for client, x, a in zip(ids, now, agreed, strict=True)]
        kept = sorted(range(len(rows)), key=lambda k: self.score[k])[: len(rows) - 2 * self.b]
        for k, client in enumerate(ids):
            self.left_out[client] = 0 if k in kept else self.left_out.get(client, 0) + 1
        self.forget(ids)
        return mean_of(clipped, kept), set(kept)

    def steadiness(self, client: int) -> float:
        """Mean cosine between what remained in different rounds, weighted by their ages; 0 of a single round."""
        past = self.remains[client][::-1]
        above = below = 0.0
        for i, r in enumerate(past):
            for j, other in enumerate(past):
                if i != j:
                    above += self.beta ** (i + j) * dot(r, other) / (norm(r) * norm(other))
                    below += self.beta ** (i + j)
        return above / below if below > 0 else 0.0

    def agreement_with_the_past(self, client: int, remains: Vector) -> float:
        """Mean cosine with what remained in earlier rounds, weighted by their ages; 0 of a first round."""
        past = self.remains.get(client, [])[::-1]
        weights = [self.beta**age for age in range(len(past))]
        cosines = [dot(remains, r) / (norm(remains) * norm(r)) for r in past]
        return sum(w * c for w, c in zip(weights, cosines, strict=True)) / sum(weights) if past else 0.0

    def standing(self, client: int, now: float, agreed: float, usual: float) -> float:
        """First by suspicion or agreement that passes its limit, then by this round; `closest`: how close a call."""
        past = self.suspicions[client][::-1]
        weights = [self.hold**age for age in range(len(past))]
        suspicion = sum(w * s for w, s in zip(weights, past, strict=True)) / sum(weights)
        self.closest = min(self.closest, abs(suspicion - self.doubt), abs(agreed - self.agreement))
        if now >= 5:
            suspicion = 5.0
        if len(past) < self.probation and len(past) < usual / 2:
            suspicion = max(suspicion, self.doubt)
        suspicion = suspicion if suspicion >= self.doubt else 0.0
        if self.left_out.get(client, 0) >= self.patience and now < 5:
            return now
        return 1000 * max(suspicion, agreed if agreed >= self.agreement else 0.0) + now

    def forget(self, ids: Sequence[int]) -> None:
        """Only the clients last seen stay; of those seen alike, the smallest ids."""
        self.rounds += 1
        self.last_seen |= dict.fromkeys(ids, self.rounds)
        stay = sorted(self.last_seen, key=lambda client: (-self.last_seen[client], client))[: self.remember]
        for client in set(self.last_seen) - set(stay):
            del self.last_seen[client], self.remains[client], self.suspicions[client], self.left_out[client]


def deviations(values: Sequence[float], limit: float = 5.0, uneven: float = 1e-6) -> list[float]:
    """Robust spreads above the median, at most five either way."""
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median([abs(v - middle) for v in values]))
    return [max(-limit, min(limit, (v - middle) / (spread + uneven))) for v in values]


def krum_picks(rows: Sequence[Vector], f: int, count: int, fewer: int = 2) -> list[int]:
    """Krum, again and again among those left; distances from differences, never from expanded squares."""
    between = {(i, j): dot(rows[i] - rows[j], rows[i] - rows[j]) for i in range(len(rows)) for j in range(i)}
    left = list(range(len(rows)))
    picked: list[int] = []
    while left and len(picked) < count:
        scores = []
        for i in left:
            distances = sorted(between[max(i, j), min(i, j)] for j in left if j != i)
            near = min(max(1, len(left) - f - fewer), len(left) - 1)
            scores.append(sum(distances[:near]))
        best = left[scores.index(min(scores))]
        picked.append(best)
        left.remove(best)
    return picked


def krum_scores(rows: Sequence[Vector], f: int, fewer: int = 2) -> list[float]:
    """Sums of the squared distances to the n - f - 2 nearest others."""
    n = len(rows)
    scores = []
    for i in range(n):
        distances = sorted(dot(rows[i] - rows[j], rows[i] - rows[j]) for j in range(n) if j != i)
        scores.append(sum(distances[: max(1, n - f - fewer)]))
    return scores


def multi_krum(rows: Sequence[Vector], f: int, k: int, fewer: int = 2) -> Answer:
    """Blanchard et al. 2017, section 4: the k vectors with the lowest scores."""
    scores = krum_scores(rows, f, fewer)
    picked = sorted(range(len(rows)), key=lambda i: scores[i])[:k]
    return mean_of(rows, picked), set(picked)


def multi_krum_rescored(rows: Sequence[Vector], f: int, k: int, fewer: int = 2) -> Answer:
    """One pick at a time, as long as Krum's own condition n > 2f + 2 holds for those left."""
    possible = [p for p in range(1, k + 1) if len(rows) - (p - 1) > 2 * f + 2]
    picked = krum_picks(rows, f, max(possible, default=1), fewer)
    return mean_of(rows, picked), set(picked)


def bulyan(rows: Sequence[Vector], f: int) -> Answer:
    theta = len(rows) - 2 * f
    picked = krum_picks(rows, f, theta)
    beta = theta - 2 * f
    out = np.empty_like(rows[0])
    for c in range(len(out)):
        column = sorted(float(rows[i][c]) for i in picked)
        middle = column[(theta - 1) // 2]
        nearest = sorted(column, key=lambda value: abs(value - middle))[:beta]
        out[c] = sum(nearest) / beta
    return out, set(picked)


def majority(rows: Sequence[Vector]) -> tuple[set[int], float]:
    """The rows of the smallest balls around a row that hold more than half of all rows, and the radius."""
    n = len(rows)
    distances = [[norm(rows[i] - rows[j]) for j in range(n)] for i in range(n)]
    reach = [sorted(distances[i])[n // 2] for i in range(n)]
    radius = min(reach)
    return {j for i in range(n) for j in range(n) if reach[i] == radius and distances[i][j] <= radius}, radius


def geometric_median(rows: Sequence[Vector], smoothing: float = 1e-6, steps: int = 200) -> Answer:
    """Weiszfeld on the vectors themselves."""
    near, radius = majority(rows)
    nu = smoothing * radius
    z = mean_of(rows, sorted(near))
    for _ in range(steps if nu > 0 else 0):
        z = weiszfeld_step(rows, z, nu)
    return z, set(range(len(rows)))


def weiszfeld_step(rows: Sequence[Vector], z: Vector, nu: float) -> Vector:
    weights = [1 / max(nu, norm(row - z)) for row in rows]
    return sum((w * row for w, row in zip(weights, rows, strict=True)), np.zeros_like(z)) / sum(weights)


def top_k(rows: Sequence[Vector], fraction: float) -> Answer:
    sparse = []
    for row in rows:
        k = math.ceil(fraction * len(row))
        largest = sorted(range(len(row)), key=lambda c: -abs(float(row[c])))[:k]
        kept = np.zeros_like(row)
        for c in largest:
            kept[c] = row[c]
        sparse.append(kept)
    return mean_of(sparse, range(len(rows))), set(range(len(rows)))


def dp(
    rows: Sequence[Vector], noise: Sequence[Vector], sigma: float, bound: float | None = None, multiplier: float = 1.0
) -> Answer:
    """Clip (if there is a bound), add each client's own noise N(0, sigma²), and only then take the mean."""
    if bound is not None:
        rows, sigma = clip(rows, bound), multiplier * bound
    noisy = [row + sigma * drawn for row, drawn in zip(rows, noise, strict=True)]
    return mean_of(noisy, range(len(rows))), set(range(len(rows)))


def client_noise(round_seed: int, clients: Sequence[int], d: int) -> list[Vector]:
    """Standard normal noise for every client of a round: a generator of its own for each, named by the client."""
    out = []
    for client in clients:
        source = torch.Generator().manual_seed(derive(round_seed, "noise", client, 0))
        out.append(torch.randn(d, generator=source).double().numpy())
    return out


def fltrust(rows: Sequence[Vector], root: Vector) -> Answer:
    trust = [max(0.0, math.cos(angle(row, root))) if norm(row) > 0 and norm(root) > 0 else 0.0 for row in rows]
    trust = [t if t > 1e-15 else 0.0 for t in trust]  # cos(pi/2) is not quite zero
    if sum(trust) == 0:
        return np.zeros_like(root), set()
    total = np.zeros_like(root)
    for t, row in zip(trust, rows, strict=True):
        if t > 0:
            total = total + t * (norm(root) / norm(row)) * row
    return total / sum(trust), {i for i, t in enumerate(trust) if t > 0}


def fang(rows: Sequence[Vector], score: Callable[[Vector], tuple[float, float]], f: int, method: str) -> Answer:
    """(loss, error rate) of the mean with everybody, less that without i; drop the f largest of each."""
    n = len(rows)
    everyone = score(mean_of(rows, range(n)))
    dropped: set[int] = set()
    for used, which in (("err", 1), ("lfr", 0)):
        if method in (used, "both"):
            impact = [everyone[which] - score(mean_of(rows, [j for j in range(n) if j != i]))[which] for i in range(n)]
            dropped |= set(sorted(range(n), key=lambda i: (-impact[i], -i))[:f])
    kept = [i for i in range(n) if i not in dropped]
    return mean_of(rows, kept), set(kept)


def flame_majority(rows: Sequence[Vector]) -> set[int]:
    """Who is in FLAME's majority cluster; everybody if there is none."""
    from sklearn.cluster import HDBSCAN

    n = len(rows)
    distances = np.array(
        [[0.0 if i == j else 1 - math.cos(angle(rows[i], rows[j])) for j in range(n)] for i in range(n)]
    )
    model = HDBSCAN(
        min_cluster_size=n // 2 + 1, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
    )
    labels = model.fit_predict(distances)
    kept = {i for i in range(n) if labels[i] >= 0}
    return kept or set(range(n))


def flame(rows: Sequence[Vector]) -> Answer:
    kept = flame_majority(rows)
    return mean_of(clip(rows, median_norm(rows)), sorted(kept)), kept


def cluster_labels(
    points: NDArray[np.float64], keys: Sequence[float], metric: str, size: int, single: bool
) -> list[int]:
    """HDBSCAN's labels, -1 for none; the points are shown in the order of their keys."""
    from sklearn.cluster import HDBSCAN

    n = len(points)
    order = sorted(range(n), key=lambda i: keys[i])
    shown = np.array([[points[i][j] for j in order] if metric == "precomputed" else points[i] for i in order])
    model = HDBSCAN(
        min_cluster_size=min(size, n), min_samples=min(size, n), metric=metric, allow_single_cluster=single, copy=True
    )
    found = model.fit_predict(shown)
    return [int(found[order.index(i)]) for i in range(n)]


def deepsight(
    rows: Sequence[Vector],
    classes: int,
    hidden: int,
    ratios: Sequence[Sequence[Vector]],
    allowed: float = 1 / 3,
    size: int = 3,
) -> Answer:
    """DeepSight for three clients or more whose rows end in the output layer: weights [P, h], then bias [P].

    `ratios` are the division differences: for each batch of noise, one vector [P] a client (no batch: no vote).
    """
    n = len(rows)
    keys = [norm(row) for row in rows]
    weights = [row[-classes * (hidden + 1) : -classes].reshape(classes, hidden) for row in rows]
    biases = [row[-classes:] for row in rows]
    energies = [exceedings(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
    typical = float(np.median([count for _, count in energies]))
    suspect = [count <= typical / 2 for _, count in energies]

    cosine = np.array(
        [[0.0 if i == j else 1 - math.cos(angle(biases[i], biases[j])) for j in range(n)] for i in range(n)]
    )
    by_bias = cluster_labels(cosine, keys, "precomputed", size, single=False)
    by_energy = cluster_labels(np.array([neups for neups, _ in energies]), keys, "euclidean", size, single=False)
    by_batch = [cluster_labels(np.array(batch), keys, "euclidean", size, single=False) for batch in ratios]

    apart = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            votes = [float(labels[i] != labels[j]) for labels in (by_bias, by_energy)]
            if by_batch:
                votes.append(sum(labels[i] != labels[j] for labels in by_batch) / len(by_batch))
            apart[i][j] = sum(votes) / len(votes)
    final = cluster_labels(apart, keys, "precomputed", size, single=True)

    kept = set()
    for i in range(n):
        cluster = [j for j in range(n) if final[j] == final[i]] if final[i] >= 0 else [i]
        if sum(suspect[j] for j in cluster) / len(cluster) < allowed:
            kept.add(i)
    clipped = clip(rows, median_norm(rows))
    return mean_of(clipped, sorted(kept)) if kept else np.zeros_like(rows[0]), kept


def exceedings(weight: NDArray[np.float64], bias: Vector) -> tuple[list[float], int]:
    """DeepSight: NEUPs of one client's output layer update [P, h], [P], and its threshold exceedings."""
    classes = len(bias)
    energy = [abs(float(bias[p])) + sum(abs(float(w)) for w in weight[p]) for p in range(classes)]
    squares = [e * e for e in energy]
    neups = [s / sum(squares) for s in squares]
    threshold = max(0.01, 1 / classes) * max(neups)
    return neups, sum(c > threshold for c in neups)


def nearest_neighbour_mixing(rows: Sequence[Vector], f: int) -> list[Vector]:
    """Allouah et al. 2023, Algorithm 2: of each row, the mean of the n - f rows nearest to it, itself among them."""
    n = len(rows)
    mixed = []
    for i in range(n):
        order = sorted(range(n), key=lambda j, i=i: norm(rows[i] - rows[j]) if j != i else -1.0)
        mixed.append(mean_of(rows, order[: n - f]))
    return mixed


def bucketing(
    rows: Sequence[Vector], round_seed: int, clients: Sequence[int], size: int
) -> list[tuple[set[int], Vector]]:
    """Who is in each bucket, and the bucket's mean: the clients in the order of their own draws, `size` at a time."""
    order = sorted(range(len(rows)), key=lambda i: derive(round_seed, "bucket", clients[i], 0))
    groups = [order[start : start + size] for start in range(0, len(rows), size)]
    return [(set(group), mean_of(rows, group)) for group in groups]


class ClientMomentum:
    """Every client's running mean, from all of its updates so far: weights (1 - beta) beta^age, made to sum to one."""

    def __init__(self, beta: float) -> None:
        self.beta = beta
        self.past: dict[int, list[Vector]] = {}

    def round(self, rows: Sequence[Vector], ids: Sequence[int]) -> list[Vector]:
        for client, row in zip(ids, rows, strict=True):
            self.past.setdefault(client, []).append(row)
        return [self._mean(self.past[client]) for client in ids]

    def _mean(self, updates: list[Vector]) -> Vector:
        weights = [self.beta**age for age in reversed(range(len(updates)))]
        return sum(w * u for w, u in zip(weights, updates, strict=True)) / sum(weights)  # type: ignore[return-value]


class CenteredClipping:
    """Karimireddy et al. 2021, Algorithm 2, over rounds; without a radius, the median distance at every step."""

    def __init__(self, radius: float | None, steps: int) -> None:
        self.radius, self.steps = radius, steps
        self.centre: Vector | None = None

    def round(self, rows: Sequence[Vector]) -> Answer:
        v = np.zeros_like(rows[0]) if self.centre is None else self.centre
        for _ in range(self.steps):
            bound = float(np.median([norm(row - v) for row in rows])) if self.radius is None else self.radius
            v = v + mean_of(clip([row - v for row in rows], bound), range(len(rows)))
        self.centre = v
        return v, set(range(len(rows)))


def meamed(rows: Sequence[Vector], f: int) -> Answer:
    """Xie et al. 2018: of every coordinate, the mean of the n - f values nearest to the median."""
    out = np.empty_like(rows[0])
    for c in range(len(out)):
        column = [float(row[c]) for row in rows]
        middle = float(np.median(column))
        nearest = sorted(column, key=lambda value, middle=middle: abs(value - middle))[: len(rows) - f]
        out[c] = sum(nearest) / len(nearest)
    return out, set(range(len(rows)))


def dnc_scores(rows: Sequence[Vector], coordinates: Sequence[int]) -> list[float]:
    """Shejwalkar & Houmansadr 2021, Algorithm 2: squared projections of the centred rows on their top right vector."""
    part = np.array([[row[c] for c in coordinates] for row in rows])
    centred = part - part.mean(axis=0)
    top = np.linalg.svd(centred, full_matrices=False)[2][0]
    return [dot(row, top) ** 2 for row in centred]


def dnc(rows: Sequence[Vector], drop: int, draws: Sequence[Sequence[int]]) -> Answer:
    times = [0] * len(rows)
    for coordinates in draws:
        scores = dnc_scores(rows, coordinates)
        for i in sorted(range(len(rows)), key=lambda i, scores=scores: scores[i])[len(rows) - drop :]:
            times[i] += 1
    kept = [i for i in range(len(rows)) if times[i] == min(times)]
    return mean_of(rows, kept), set(kept)
