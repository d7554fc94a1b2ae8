"""The epsilon that the runs of a rule refute together, and the most that their targets could have shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scapegoat.membership import epsilon
from scapegoat.membership.assessment import BOUNDS
from scapegoat.report.facts import Facts
from scapegoat.report.told import Told

IF_GAUSSIAN = ("gaussian_noise", "gaussian_noise_by_auc")
"""Bounds that take Gaussian noise for granted: far tighter than the one for any mechanism where it was added."""


@dataclass(frozen=True)
class Refuted:
    """A lower bound that holds over all runs looked at, and what perfect scores of the same targets would have given.

    `reachable` is None where it is not known. `if_gaussian` are the bounds that hold if noise is Gaussian, of runs that
    account for an epsilon: each is as sure as `lower`.
    """

    lower: float
    reachable: float | None = None
    if_gaussian: Mapping[str, float] = field(default_factory=dict)


def by_targets(runs: Sequence[tuple[Facts, Told | None]]) -> Refuted | None:
    """From the stored scores; None unless every run has them and a bound of its own."""
    if not runs or any(told is None or facts.epsilon_lower is None for facts, told in runs):
        return None
    known = [([told.scores[n] for n in facts.scores if n in told.scores], told.member) for facts, told in runs if told]
    sure = epsilon.share(sum(len(scores) for scores, _ in known))
    most = [epsilon.reachable(int(member.sum()), int((~member).sum()), confidence=sure) for _, member in known]
    tight = IF_GAUSSIAN if any(facts.epsilon is not None for facts, _ in runs) else ()
    return Refuted(
        epsilon.over_runs(known),
        max(most),
        {n: max(BOUNDS[n](values, member, sure) for scores, member in known for values in scores) for n in tight},
    )


def by_summaries(runs: Sequence[Facts]) -> Refuted | None:
    """The same from summaries alone, of the runs that have a bound.

    Where summaries of several runs do not say what was guessed, the smallest of their bounds: it needs no correction.
    """
    known = [(run.epsilon_lower, run) for run in runs if run.epsilon_lower is not None]
    guessed = [run.guessed for _, run in known if run.guessed is not None]
    private = [run for _, run in known if run.epsilon is not None]
    tight = {
        name: min(run.bounds[name] for run in private)
        for name in IF_GAUSSIAN
        if private and all(name in run.bounds for run in private)
    }
    if len(known) < 2 or len(guessed) < len(known):
        lower, run = min(known, key=lambda pair: pair[0], default=(None, None))
        return None if lower is None or run is None else Refuted(lower, run.epsilon_reachable, tight)
    sure = epsilon.share(sum(run.tried for run in guessed))
    return Refuted(
        max(epsilon.of_guesses(run.targets, run.by_rule, confidence=sure) for run in guessed),
        max(epsilon.reachable(run.members, run.targets - run.members, confidence=sure) for run in guessed),
        tight,
    )
