"""Theorem 1 of the paper: a bound on how far the trimmed mean of angles strays, and how it fares against chance.

The theorem takes n angles, of which n - m are honest, i.i.d. with mean omega and variance sigma², and m are malicious.
It bounds the expected squared distance from omega of the mean of the angles that are left after trimming. Its proof
trims b from *both* ends of the sorted angles; the algorithm drops the 2b *largest*. Both are checked here.

`python -m results.theory` prints the tables of docs/theory.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from scapegoat import geometry
from scapegoat.errors import InputError
from scapegoat.randomness import derive, numpy_generator

Floats = NDArray[np.float64]
Trimming = Literal["both ends", "largest"]
Sends = Literal["honest", "mean", "opposite"]
SENDS: tuple[Sends, ...] = ("honest", "mean", "opposite")

FAR = 1e3
"""Where malicious angles go to be far out, in standard deviations of honest ones."""


def bound(n: int, m: int, b: int, sigma: float = 1.0) -> float:
    """2 (n - m)(b + 1) sigma² / (n - b - m)², the right-hand side of Theorem 1."""
    if min(m, b) < 0 or 2 * m >= n or b + m >= n:
        raise InputError(f"Theorem 1 needs 2m < n and b + m < n, with m, b >= 0; these are n = {n}, m = {m}, b = {b}")
    return 2 * (n - m) * (b + 1) * sigma**2 / (n - b - m) ** 2


def bound_largest(n: int, m: int, b: int, sigma: float = 1.0) -> float:
    """2 (n - m)(2b - m + 1) sigma² / (n - 2b)²: what the same proof gives for the algorithm as written.

    It holds if the 2b angles dropped include every malicious one (m <= 2b, all of them at the upper end): those kept
    are then n - 2b of the n - m honest ones, and the steps of the proof go through with 2b - m in place of b.
    """
    if not 0 <= m <= 2 * b < n:
        raise InputError(f"m <= 2b < n is expected; these are n = {n}, m = {m}, b = {b}")
    return 2 * (n - m) * (2 * b - m + 1) * sigma**2 / (n - 2 * b) ** 2


def trimmed_mean(angles: Floats, b: int, trimming: Trimming) -> Floats:
    """Mean of each row of sorted angles [trials, n] without b at both ends, or without the 2b largest."""
    n = angles.shape[1]
    ordered = np.sort(angles, axis=1)
    kept = ordered[:, b : n - b] if trimming == "both ends" else ordered[:, : n - 2 * b]
    return np.asarray(kept.mean(axis=1))


def _standard(values: Floats, mean: float, deviation: float) -> Floats:
    return (values - mean) / deviation


Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-math.sqrt(3), math.sqrt(3), shape),
    "exponential": lambda rng, shape: rng.exponential(1.0, shape) - 1,
    "minus exponential": lambda rng, shape: 1 - rng.exponential(1.0, shape),
    "Student t, 3": lambda rng, shape: rng.standard_t(3, shape) / math.sqrt(3),
    "Pareto, 2.5": lambda rng, shape: _standard(rng.pareto(2.5, shape), 2 / 3, math.sqrt(20) / 3),
    "Bernoulli, 1/2": lambda rng, shape: _standard((rng.random(shape) < 0.5).astype(float), 0.5, 0.5),
    "Bernoulli, 1/100": lambda rng, shape: _standard((rng.random(shape) < 0.01).astype(float), 0.01, math.sqrt(0.0099)),
    "Bernoulli, 99/100": lambda rng, shape: _standard(
        (rng.random(shape) < 0.99).astype(float), 0.99, math.sqrt(0.0099)
    ),
}
"""Honest angles with mean 0 and variance 1: the bound scales with sigma and moves with omega."""

PLACEMENTS: dict[str, Callable[[Floats, int], Floats]] = {
    "far above": lambda honest, m: np.full((len(honest), m), FAR),
    "far below": lambda honest, m: np.full((len(honest), m), -FAR),
    "just above": lambda honest, m: np.repeat(honest.max(axis=1, keepdims=True), m, axis=1),
    "just below": lambda honest, m: np.repeat(honest.min(axis=1, keepdims=True), m, axis=1),
    "half and half": lambda honest, m: np.tile(np.where(np.arange(m) % 2 == 0, FAR, -FAR), (len(honest), 1)),
}
"""Where m malicious angles go, with sight of the honest ones."""


@dataclass(frozen=True)
class Check:
    """A Monte-Carlo estimate of the left-hand side of Theorem 1, beside its bound."""

    error: float
    standard_error: float
    bound: float

    @property
    def ratio(self) -> float:
        """Error over bound: above 1 the bound fails, far below 1 it is loose."""
        return self.error / self.bound

    @property
    def fails(self) -> bool:
        """Whether the error is above the bound by more than four standard errors."""
        return self.error - 4 * self.standard_error > self.bound


def check(
    n: int,
    m: int,
    b: int,
    distribution: str = "normal",
    placement: str | float = "far above",
    trimming: Trimming = "both ends",
    trials: int = 20_000,
    seed: int = 0,
) -> Check:
    """The mean over `trials` of (trimmed mean - omega)², in units of sigma².

    `placement` names where the malicious angles go, or says how many sigma above omega all of them are.
    """
    if 2 * b >= n:
        raise InputError(f"2b < n is expected; these are n = {n}, b = {b}")
    rng = numpy_generator(seed, f"theory/{distribution}/{placement}/{trimming}", n, m, b)
    honest = DISTRIBUTIONS[distribution](rng, (trials, n - m))
    malicious = PLACEMENTS[placement](honest, m) if isinstance(placement, str) else np.full((trials, m), placement)
    angles = np.concatenate([honest, malicious], axis=1)
    squared = trimmed_mean(angles, b, trimming) ** 2
    return Check(float(squared.mean()), float(squared.std() / math.sqrt(trials)), bound(n, m, b))


@dataclass(frozen=True)
class Gradients:
    """Theorem 1 on the mean angles of real vectors, where the m attackers send something."""

    omega: float
    sigma: float
    attacker: float
    attacker_kept: float
    check: Check


def gradients(
    sends: Sends,
    n: int = 10,
    m: int = 1,
    b: int = 1,
    signal: float = 0.3,
    d: int = 1000,
    trials: int = 1000,
    seed: int = 0,
) -> Gradients:
    """ATM on honest gradients (a common direction of length `signal` plus unit noise) and what the attackers send.

    They send an honest gradient of their own, the mean of the honest ones, or its opposite. omega and sigma² are the
    mean and variance of an honest client's mean angle to the other honest ones; the angles that ATM averages are those
    of the rows that it keeps, computed among all n.
    """
    draw = torch.Generator().manual_seed(derive(seed, f"theory/{sends}", n, m, b))
    direction = torch.zeros(d)
    direction[0] = signal
    honest_angles, attacker_angles, kept_means, kept_attackers = [], [], [], 0
    for _ in range(trials):
        rows = torch.randn(n, d, generator=draw) / math.sqrt(d) + direction
        if sends != "honest":
            rows[n - m :] = rows[: n - m].mean(0) * (1 if sends == "mean" else -1)
        honest_angles.append(geometry.mean_angles(geometry.gram(rows[: n - m])))
        angles = geometry.mean_angles(geometry.gram(rows))
        kept = angles.argsort(stable=True)[: n - 2 * b]
        kept_attackers += int((kept >= n - m).sum())
        attacker_angles.append(angles[n - m :])
        kept_means.append(float(angles[kept].mean()))
    honest = torch.cat(honest_angles)
    omega, sigma = float(honest.mean()), float(honest.std())
    squared = (np.array(kept_means) - omega) ** 2
    measured = Check(float(squared.mean()), float(squared.std() / math.sqrt(trials)), bound(n, m, b, sigma))
    attacker = float(torch.cat(attacker_angles).mean())
    return Gradients(omega, sigma, attacker, kept_attackers / (m * trials), measured)


Setting = tuple[int, int, int]

ENOUGH: tuple[Setting, ...] = (
    (10, 0, 1), (10, 1, 1), (10, 1, 2), (10, 2, 3), (10, 3, 4), (50, 5, 5), (50, 10, 10), (50, 10, 20), (50, 20, 24),
)  # fmt: skip
TOO_FEW: tuple[Setting, ...] = ((10, 2, 1), (10, 4, 3), (50, 10, 5))
HEAVY: tuple[Setting, ...] = ((10, 0, 4), (50, 0, 20), (50, 0, 24))
DISTANCES = (1.0, 2.0, 4.0, 8.0, 16.0, 1000.0)


def tables(trials: int = 20_000, seed: int = 0) -> Iterator[str]:
    """The tables of docs/theory.md, as lines of Markdown."""
    yield from _by_distribution(
        "1. Trimming b at both ends, m <= b", "both ends", ENOUGH, tuple(PLACEMENTS), trials, seed
    )
    yield from _by_distance("2. Trimming b at both ends, m > b", "both ends", TOO_FEW, +1, trials, seed)
    above = ("far above", "just above")
    title = "3. Dropping the 2b largest, malicious angles above the honest ones or none"
    yield from _by_distribution(title, "largest", ENOUGH + HEAVY, above, trials, seed)
    yield from _by_distance(
        "4. Dropping the 2b largest, malicious angles below", "largest", ENOUGH[1:], -1, trials, seed
    )
    yield from _gradient_table(max(200, trials // 20), seed)


def _header(title: str, first: str, settings: tuple[Setting, ...]) -> Iterator[str]:
    yield f"{title}: error / bound"
    yield ""
    yield f"| {first} | " + " | ".join(f"n={n} m={m} b={b}" for n, m, b in settings) + " |"
    yield "| --- |" + " --- |" * len(settings)


def _cell(checks: list[Check]) -> str:
    worst = max(checks, key=lambda c: c.ratio)
    return f"{worst.ratio:.2g}" + (" **fails**" if worst.fails else "")


def _by_distribution(
    title: str, trimming: Trimming, settings: tuple[Setting, ...], placements: tuple[str, ...], trials: int, seed: int
) -> Iterator[str]:
    """A row a distribution of honest angles, at the worst of the placements."""
    yield from _header(title, "honest angles", settings)
    for name in DISTRIBUTIONS:
        cells = [
            _cell([check(n, m, b, name, where, trimming, trials, seed) for where in placements]) for n, m, b in settings
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""


def _by_distance(
    title: str, trimming: Trimming, settings: tuple[Setting, ...], sign: int, trials: int, seed: int
) -> Iterator[str]:
    """A row a distance of the malicious angles from omega; honest angles are normal."""
    yield from _header(title, "distance, sigma", settings)
    for distance in DISTANCES:
        cells = [_cell([check(n, m, b, "normal", sign * distance, trimming, trials, seed)]) for n, m, b in settings]
        yield f"| {distance:g} | " + " | ".join(cells) + " |"
    yield ""


def _gradient_table(trials: int, seed: int) -> Iterator[str]:
    yield f"5. ATM on gradients in 1000 dimensions, n = 10, m = 1, b = 1, {trials} trials; angles in radians"
    yield ""
    yield "| attacker sends | signal | omega | sigma | attacker's angle | attacker kept | error / bound |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for signal in (0.0, 0.3, 1.0):
        for sends in SENDS:
            g = gradients(sends, signal=signal, trials=trials, seed=seed)
            ratio = f"{g.check.ratio:.3g}" + (" **fails**" if g.check.fails else "")
            yield (
                f"| {sends} | {signal} | {g.omega:.3f} | {g.sigma:.4f} | {g.attacker:.3f} | {g.attacker_kept:.2f} "
                f"| {ratio} |"
            )
    yield ""


if __name__ == "__main__":
    for line in tables():
        print(line)
