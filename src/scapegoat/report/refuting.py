"""The epsilon that the runs of a rule refute together, and the most that their targets could have shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scapegoat.membership import epsilon
from scapegoat.report.facts import Facts
from scapegoat.report.told import Told


@dataclass(frozen=True)
class Refuted:
    """A lower bound that holds over all runs looked at, and what perfect scores of the same targets would have given.

    `reachable` is None where it is not known.
    """

    lower: float
    reachable: float | None = None


def by_targets(runs: Sequence[tuple[Facts, Told | None]]) -> Refuted | None:
    """From the stored scores; None unless every run has them and a bound of its own."""
    if not runs or any(told is None or facts.epsilon_lower is None for facts, told in runs):
        return None
    known = [([told.scores[n] for n in facts.scores if n in told.scores], told.member) for facts, told in runs if told]
    sure = epsilon.share(sum(len(scores) for scores, _ in known))
    most = [epsilon.reachable(int(member.sum()), int((~member).sum()), confidence=sure) for _, member in known]
    return Refuted(epsilon.over_runs(known), max(most))


def by_summaries(runs: Sequence[Facts]) -> Refuted | None:
    """The same from summaries alone, of the runs that have a bound.

    Where summaries of several runs do not say what was guessed, the smallest of their bounds: it needs no correction.
    """
    known = [(run.epsilon_lower, run) for run in runs if run.epsilon_lower is not None]
    guessed = [run.guessed for _, run in known if run.guessed is not None]
    if len(known) < 2 or len(guessed) < len(known):
        lower, run = min(known, key=lambda pair: pair[0], default=(None, None))
        return None if lower is None or run is None else Refuted(lower, run.epsilon_reachable)
    sure = epsilon.share(sum(run.tried for run in guessed))
    return Refuted(
        max(epsilon.of_guesses(run.targets, run.by_rule, confidence=sure) for run in guessed),
        max(epsilon.reachable(run.members, run.targets - run.members, confidence=sure) for run in guessed),
    )
