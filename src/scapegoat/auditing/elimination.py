"""Elimination: the strongest attack, tried on every rule first, decides which rules the other runs are spent on.

A decision is made from the figures of finished runs alone, so that the same audit, stopped and started however often,
decides alike and computes nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scapegoat.experiments import Spec
from scapegoat.experiments.spec import describe

PROBE = "fedpoisonmia"
"""The attack that most rules yield to."""
PLAIN = "fedavg"
"""What every rule is compared with: it gets all attacks."""
KEPT = 2
"""So many rules get all attacks and seeds as well, however much they leak: that none helps is shown by the best."""
MOST_KEPT = 3
MARGIN = 0.05
"""Differences in AUC below this decide nothing."""


@dataclass(frozen=True)
class LeftOut:
    """A run that was not computed, because its rule was eliminated."""

    spec: Spec
    reason: str


Figures = Mapping[tuple[str, str], Mapping[str, Any]]
"""`membership` of finished runs of the first seed by (attack, rule)."""


def first_stage(planned: Mapping[str, Spec]) -> dict[str, Spec]:
    """What is run in any case, with the first seed: the probe under every rule, every attack under plain averaging."""
    seed = min(spec.seed for spec in planned.values())
    return {
        name: spec
        for name, spec in planned.items()
        if spec.seed == seed and (spec.attack.name == PROBE or describe(spec.defense) == PLAIN)
    }


def about(planned: Mapping[str, Spec]) -> int:
    """Runs to expect while it is not known which rules stay."""
    rules = len({describe(spec.defense) for spec in planned.values()})
    of_rule = len(planned) // rules
    return min(len(planned), (KEPT + 1) * of_rule + max(rules - KEPT - 1, 0))


def staying(figures: Figures) -> list[str]:
    """The rules that get all attacks and seeds, from what is known so far; plain averaging is one of them.

    The `KEPT` rules that leak least to the probe stay. Once all their attacks have run, the next best one joins them if
    it leaks to the probe less, by more than `MARGIN`, than one of them to its worst attack.
    """
    probed = {rule: _auc(found) for (attack, rule), found in figures.items() if attack == PROBE and rule != PLAIN}
    ranked = sorted(probed, key=lambda rule: (probed[rule], rule))
    kept, others = ranked[:KEPT], ranked[KEPT:MOST_KEPT]
    for rule in others:
        if any(probed[rule] < _worst(figures, other)[0] - MARGIN for other in kept):
            kept.append(rule)
    return [PLAIN, *kept]


def reason(figures: Figures, rule: str) -> str:
    """Why a rule was eliminated: what it leaks to the probe, beside plain averaging and the rules that stayed."""
    found = figures[PROBE, rule]
    low = float(found["worst_score"]["auc_ci"][0])
    kept = ", ".join(f"{r} {_auc(figures[PROBE, r]):.2f}" for r in staying(figures) if (PROBE, r) in figures)
    as_much = (PROBE, PLAIN) in figures and low > _auc(figures[PROBE, PLAIN]) - MARGIN
    why = f"as much as under {PLAIN}" if as_much else "more than under the rules that stayed"
    return f"eliminated by {PROBE}: AUC {_auc(found):.2f}, {why} ({kept})"


def _auc(membership: Mapping[str, Any]) -> float:
    return float(membership["worst_score"]["auc"])


def _worst(figures: Figures, rule: str) -> tuple[float, str]:
    return max((_auc(found), attack) for (attack, of), found in figures.items() if of == rule)
