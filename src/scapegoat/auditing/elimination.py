"""Successive elimination: where an audit's runs decide most.

The strongest attack, tried on every rule with one seed, decides which rules meet the other attacks; all attacks
together decide which of those get more seeds. Rules that one seed tells from the best need no second one: the luck of
a seed is smaller than that. A decision is made from the figures of finished runs alone, so that the same audit, stopped
and started however often, decides alike and computes nothing twice.
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
WATCHING = "passive"
"""What every attack is compared with."""
KEPT = 2
"""So many rules get all attacks as well where the probe cannot tell them apart, however much they leak: that none helps
is shown by the best."""
MOST_KEPT = 3
SEEDS = 3
"""So many seeds have the rules that one seed cannot tell from the best. Two would say less than one: the interval over
two is as wide as a guess."""
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


def about(planned: Mapping[str, Spec], *, spread: bool = False) -> int:
    """Runs to expect while it is not known which rules stay; `spread` if more seeds are for the best rule alone."""
    seeds = len({spec.seed for spec in planned.values()})
    rules = len({describe(spec.defense) for spec in planned.values()})
    attacks = len(planned) // rules // seeds
    of_rule = attacks if spread else attacks * seeds
    more = (seeds - 1) * (attacks + 1) if spread else 0
    return min(len(planned), (KEPT + 1) * of_rule + max(rules - KEPT - 1, 0) + more)


def staying(figures: Figures) -> list[str]:
    """The rules that get all attacks, from what is known so far; plain averaging is one of them.

    The rule that leaks least to the probe stays, and the next if the probe cannot tell it from that one. Once all their
    attacks have run, the next best joins them if it leaks to the probe less, by more than `MARGIN`, than one of them to
    its worst attack.
    """
    probed = {rule: _auc(found) for (attack, rule), found in figures.items() if attack == PROBE and rule != PLAIN}
    ranked = sorted(probed, key=lambda rule: (probed[rule], rule))
    kept = ranked[:1]
    for place, rule in enumerate(ranked[1:MOST_KEPT], start=1):
        alike = place < KEPT and _alike(figures[PROBE, rule], figures[PROBE, kept[0]])
        if alike or any(probed[rule] < _auc(_worst(figures, other)) - MARGIN for other in kept):
            kept.append(rule)
    return [PLAIN, *kept]


def contenders(figures: Figures) -> list[str]:
    """The rules that get more seeds: the one that leaks least to its worst attack, and all that may leak no more."""
    worst = {rule: _worst(figures, rule) for rule in staying(figures) if any(rule == of for _, of in figures)}
    if not worst:
        return []
    best = min(worst, key=lambda rule: (_auc(worst[rule]), rule))
    return [rule for rule, found in worst.items() if rule == best or _alike(found, worst[best])]


def needs_more_seeds(spec: Spec, figures: Figures) -> bool:
    """Whether a run with a further seed decides anything: a contender's, or merely watching, which all compare with."""
    rule = describe(spec.defense)
    return rule in contenders(figures) or (rule == PLAIN and spec.attack.name == WATCHING)


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


def _alike(one: Mapping[str, Any], least: Mapping[str, Any]) -> bool:
    """Whether the intervals of two runs meet, so that the draw of the targets may have ranked them."""
    return float(one["worst_score"]["auc_ci"][0]) <= float(least["worst_score"]["auc_ci"][1])


def _worst(figures: Figures, rule: str) -> Mapping[str, Any]:
    """What the attack that finds out most under a rule finds out."""
    return max((found for (_, of), found in figures.items() if of == rule), key=_auc)
