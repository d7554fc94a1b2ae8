"""What picking a rule by the first seed does to the figure that three seeds, that one among them, then give it.

    python -m results.staged_seeds --trials 4000

Four rules leak exactly alike, which is where picking flatters most. The first seed says which of them get more seeds,
by the audit's own elimination; of those the one that leaks least on average is taken, and its mean and interval over
the seeds are held against the truth. Beside it: a rule that was named beforehand, and one picked and judged by one
seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scapegoat.auditing.elimination import PLAIN, PROBE, SEEDS, contenders
from scapegoat.membership.metrics import Estimate
from scapegoat.report.estimate import over_seeds

RULES = (PLAIN, "median", "atm", "reputation_atm")
SPREADS = (0.0, 0.01, 0.02, 0.03)
"""Standard deviations between seeds, beyond the draw of the targets: `report.evidence.SEED_SPREAD` takes .03."""
TRUTH = 0.7
TARGETS = 0.016
"""Standard deviation that the draw of 1,000 targets gives an AUC of about .7."""
SHARED = 0.5
"""Of the variance between seeds so much is common to all rules of a seed, which share splits, targets and start."""
WAYS = ("named beforehand", "picked as an audit does", "picked and judged by one seed")


@dataclass(frozen=True)
class Row:
    """How often the interval of the rule that was taken holds the truth, and how far its figure is off on average."""

    spread: float
    way: str
    held: float
    off: float
    seeds: float


def measured(trials: int, spreads: Sequence[float] = SPREADS, seed: int = 0) -> list[Row]:
    """Every way of taking a rule, over so many audits."""
    rows = []
    for place, spread in enumerate(spreads):
        rng = np.random.default_rng([seed, place])
        found: dict[str, list[tuple[bool, float, int]]] = {way: [] for way in WAYS}
        for _ in range(trials):
            common = np.sqrt(SHARED) * spread * rng.normal(size=SEEDS)
            own = np.sqrt((1 - SHARED) * spread**2 + TARGETS**2) * rng.normal(size=(len(RULES), SEEDS))
            runs = dict(zip(RULES, TRUTH + common + own, strict=True))
            picked = _picked(runs)
            lucky = min(runs, key=lambda rule: runs[rule][0])
            taken = {WAYS[0]: runs["median"], WAYS[1]: runs[picked], WAYS[2]: runs[lucky][:1]}
            for way, values in taken.items():
                figure = over_seeds([_figure(value) for value in values])
                found[way].append((figure.low <= TRUTH <= figure.high, figure.value - TRUTH, len(values)))
        for way, results in found.items():
            held, off, seeds = np.mean(np.array(results, dtype=np.float64), axis=0)
            rows.append(Row(spread, way, float(held), float(off), float(seeds)))
    return rows


def _picked(runs: dict[str, np.ndarray]) -> str:
    """Of the rules that get more seeds, by their first, the one that leaks least over all of them."""
    first = {rule: _figure(values[0]) for rule, values in runs.items()}
    figures = {(PROBE, rule): {"worst_score": {"auc": f.value, "auc_ci": f.ci}} for rule, f in first.items()}
    return min(contenders(figures), key=lambda rule: float(runs[rule].mean()))


def _figure(value: float) -> Estimate:
    return Estimate(float(value), float(value) - 1.96 * TARGETS, float(value) + 1.96 * TARGETS)


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = ["| spread of the seeds | rule | interval holds in | off by, on average |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.spread:g} | {row.way} | {row.held:.1%} | {row.off:+.4f} |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Coverage of intervals of rules that were picked by the first seed.")
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(table(measured(options.trials, seed=options.seed)))


if __name__ == "__main__":
    main()
