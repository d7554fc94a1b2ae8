"""An audit's matrix, computed in stages: what decides first, then what is left of the rules that stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from scapegoat.auditing import elimination
from scapegoat.auditing.elimination import Figures, LeftOut
from scapegoat.experiments import Spec
from scapegoat.experiments.executors import Outcome
from scapegoat.experiments.spec import describe

Planned = Mapping[str, Spec]
"""Runs by their names."""


def in_stages(
    planned: Planned,
    beside: Planned,
    go: Callable[[Iterable[Spec]], None],
    announce: Callable[[int, bool], None],
    outcome: Outcome,
    *,
    spread: bool = False,
    last: Callable[[Iterable[Spec]], Iterable[Spec]] | None = None,
) -> tuple[dict[str, Spec], list[LeftOut]]:
    """Run the matrix by elimination; the runs that count, and those of rules that were left out.

    Parameters
    ----------
    planned: the whole matrix.
    beside: what can run beside the first stage.
    go: computes runs; their figures are in `outcome` then.
    announce: told how many runs there will be, and whether that is certain.
    spread: give seeds after the first to the rules alone that one seed cannot tell from the best; otherwise every rule
        that stays has all seeds.
    last: what can run beside the last stage, by what was chosen.
    """
    first = min(spec.seed for spec in planned.values())
    in_stage = {name: spec for name, spec in planned.items() if spec.seed == first or not spread}
    chosen = elimination.first_stage(planned)
    announce(elimination.about(planned, spread=spread), False)
    go([*chosen.values(), *beside.values()])
    while True:
        figures = _figures(planned, outcome, first)
        staying = elimination.staying(figures)
        added = {
            name: spec
            for name, spec in in_stage.items()
            # Without the probe's figure a rule cannot be eliminated; that its run failed is said elsewhere.
            if name not in chosen
            and ((rule := describe(spec.defense)) in staying or (elimination.PROBE, rule) not in figures)
        }
        if not added:
            break
        chosen |= added
        about = elimination.about(planned, spread=True) if spread else len(chosen)
        announce(max(len(chosen), about), not spread and len(staying) > elimination.MOST_KEPT)
        go(added.values())
    later = {
        name: spec
        for name, spec in planned.items()
        if spread and spec.seed != first and figures and elimination.needs_more_seeds(spec, figures)
    }
    chosen |= later
    announce(len(chosen), True)
    if later:
        go([*later.values(), *(last(chosen.values()) if last is not None else ())])
    left_out = [
        LeftOut(spec, elimination.reason(figures, describe(spec.defense)))
        for name, spec in in_stage.items()
        if name not in chosen
    ]
    return {name: spec for name, spec in planned.items() if name in chosen}, left_out


def _figures(planned: Planned, outcome: Outcome, seed: int) -> Figures:
    """What the finished runs of a seed say."""
    return {
        (spec.attack.name, describe(spec.defense)): outcome.summaries[name]["membership"]
        for name, spec in planned.items()
        if spec.seed == seed and name in outcome.summaries
    }
