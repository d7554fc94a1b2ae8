"""Figures by cell and seed: pooled, and compared between cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from scapegoat.membership.metrics import LEVEL, Estimate
from scapegoat.report.estimate import difference, over_seeds, paired, stretched
from scapegoat.report.measures import BY_KEY

WEIGHED = ("accuracy_best", "auc")
DEMONSTRATED = (*WEIGHED, "tpr_at_fpr_01")

SEED_SPREAD = 0.03
"""Standard deviation of a figure between seeds, beyond the draw of the targets: what a single seed cannot show.

Of 128 cells with three seeds (`results/location30.parquet`) it is .013 (accuracy) to .018 (AUC) on average; with the
targets' .02 it is .04 and more in one cell of ten.
"""

Figures = Mapping[str, Estimate]
Key = tuple[str, str]


class Evidence:
    """Figures by cell and seed, pooled over seeds and compared between cells."""

    def __init__(self, by_seed: Mapping[Key, Mapping[int, Figures]], baseline: Key | None) -> None:
        self.by_seed = {key: seeds for key, seeds in by_seed.items() if seeds}
        self.cells = {key: pool(list(seeds.values())) for key, seeds in self.by_seed.items()}
        usable = baseline in self.cells and all(self.cells[baseline].get(m, Estimate(0)).bounded for m in WEIGHED)
        self.baseline = baseline if usable else None
        self.reference: Figures = self.cells[baseline] if usable and baseline is not None else {}

    def get(self, attack: str | None, defense: str | None, measure: str) -> Estimate | None:
        """A pooled figure, if there is one."""
        if attack is None or defense is None:
            return None
        return self.cells.get((attack, defense), {}).get(measure)

    def gap(self, one: Key, other: Key, measure: str, comparisons: int = 1) -> Estimate:
        """How much higher `one` is than `other`, seed by seed where they share at least two."""
        ours, theirs = self.by_seed[one], self.by_seed[other]
        shared = [s for s in ours if s in theirs and measure in ours[s] and measure in theirs[s]]
        if len(shared) >= 2:
            return paired([(ours[s][measure], theirs[s][measure]) for s in shared], comparisons)
        return stretched(difference(self.cells[one][measure], self.cells[other][measure]), comparisons)

    def apart(self, one: Key, other: Key, measure: str, comparisons: int = 1) -> Estimate:
        """How much higher one rule is than another: a `gap` that no single lucky seed can make.

        With one seed its interval also allows for how much seeds usually differ, which that seed cannot show.
        """
        gap = self.gap(one, other, measure)
        if self.seeds(one, other) < 2 and gap.bounded:
            luck = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(2) * SEED_SPREAD
            below, above = math.hypot(gap.value - gap.low, luck), math.hypot(gap.high - gap.value, luck)
            gap = Estimate(gap.value, gap.value - below, gap.value + above)
            return stretched(gap, comparisons)
        return self.gap(one, other, measure, comparisons)

    def seeds(self, *cells: Key) -> int:
        """How many seeds all these cells have."""
        return max(len(set.intersection(*(set(self.by_seed[cell]) for cell in cells))), 1)

    def excess(self, cell: Key, measure: str, comparisons: int = 1) -> Estimate:
        """How much a cell leaks beyond the baseline; beyond guessing where there is no baseline."""
        if self.baseline is not None and measure in self.reference:
            return self.gap(cell, self.baseline, measure, comparisons)
        chance = BY_KEY[measure].chance or 0.0
        return stretched(difference(self.cells[cell][measure], Estimate(chance, chance, chance)), comparisons)


def pool(figures: Sequence[Figures]) -> dict[str, Estimate]:
    """Each figure over the seeds that give it."""
    keys = [key for key in BY_KEY if any(key in f for f in figures)]
    floor = {"advantage": -1.0}
    return {key: over_seeds([f[key] for f in figures if key in f], low=floor.get(key, 0.0)) for key in keys}


def above_zero(gap: Estimate) -> bool:
    """Whether a difference is demonstrably positive."""
    return gap.low > 0
