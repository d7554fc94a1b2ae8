"""How often each lower bound on epsilon holds, and how close it comes, for mechanisms whose epsilon is known.

    python -m results.epsilon_coverage --trials 1000

Randomised response tells a target's membership truthfully with probability e^eps / (1 + e^eps), which is eps-DP for
every delta. The Gaussian mechanism adds noise to it, as much as gives (eps, 1e-5). The bounds for Gaussian mechanisms
are no bounds for randomised response and are not tried on it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from scapegoat.membership import epsilon, guessing
from scapegoat.membership.scoring import Bools, Floats

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
TARGETS = 1000

Mechanism = Callable[[np.random.Generator, Bools, float], Floats]
Bound = Callable[[Floats, Bools], float]


def randomised_response(rng: np.random.Generator, member: Bools, known: float) -> Floats:
    """Scores [targets]: the truth, or its opposite with probability 1 / (1 + e^epsilon)."""
    lies = rng.random(len(member)) >= special.expit(known)
    return np.asarray(member ^ lies, dtype=np.float64)


def gaussian(rng: np.random.Generator, member: Bools, known: float) -> Floats:
    """Scores [targets]: the truth in noise that makes it (epsilon, 1e-5)-private."""
    return gaussian_distance(known) * member + rng.normal(size=len(member))


def gaussian_distance(known: float) -> float:
    """Standard deviations between the outputs of the Gaussian mechanism with this epsilon at 1e-5."""
    return float(optimize.brentq(lambda mu: guessing.gaussian_epsilon(mu) - known, 1e-3, 20.0))


MECHANISMS: dict[str, tuple[Mechanism, dict[str, Bound]]] = {
    "randomised response": (
        randomised_response,
        {
            "one run": lambda s, m: epsilon.one_run(s, m).epsilon,
            "Clopper-Pearson, threshold fixed": lambda s, m: epsilon.clopper_pearson(s, m, threshold=0.5),
        },
    ),
    "Gaussian": (
        gaussian,
        {
            "one run": lambda s, m: epsilon.one_run(s, m).epsilon,
            "one run, f-DP": lambda s, m: epsilon.one_run_gaussian(s, m).epsilon,
            "AUC, f-DP": lambda s, m: epsilon.auc_gaussian(s, m),
            "Clopper-Pearson, halves": lambda s, m: epsilon.clopper_pearson(s, m),
        },
    ),
}


@dataclass(frozen=True)
class Row:
    """One bound on one mechanism: the share of trials in which it held, and its mean."""

    mechanism: str
    known: float
    bound: str
    held: float
    mean: float

    @property
    def gap(self) -> float:
        """How far the mean is below the truth."""
        return self.known - self.mean


def measured(trials: int, epsilons: Sequence[float] = EPSILONS, targets: int = TARGETS, seed: int = 0) -> list[Row]:
    """Every bound on every mechanism, over so many trials."""
    rows = []
    for mechanism, (draw, bounds) in MECHANISMS.items():
        for place, known in enumerate(epsilons):
            rng = np.random.default_rng([seed, place])
            found: dict[str, list[float]] = {name: [] for name in bounds}
            for _ in range(trials):
                member = rng.random(targets) < 0.5
                scores = draw(rng, member, known)
                for name, bound in bounds.items():
                    found[name].append(bound(scores, member))
            rows += [
                Row(mechanism, known, name, float(np.mean(np.array(f) <= known)), float(np.mean(f)))
                for name, f in found.items()
            ]
    return rows


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = ["| mechanism | epsilon | bound | holds in | mean | below by |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [f"| {r.mechanism} | {r.known:g} | {r.bound} | {r.held:.1%} | {r.mean:.2f} | {r.gap:.2f} |" for r in rows]
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Coverage of the lower bounds on epsilon.")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--targets", type=int, default=TARGETS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(table(measured(options.trials, targets=options.targets, seed=options.seed)))


if __name__ == "__main__":
    main()
