"""What a verdict rests on: the epsilon that its runs show, and the checks that its figures passed."""

from __future__ import annotations

from collections.abc import Sequence

from scapegoat.membership.epsilon import CONFIDENCE
from scapegoat.report.facts import Facts
from scapegoat.report.measures import number, written
from scapegoat.report.model import Judgement
from scapegoat.report.wording import listed, rule

BOUNDS = {
    "any_mechanism": "whatever the mechanism",
    "gaussian_noise": "if the noise is Gaussian",
    "gaussian_noise_by_auc": "if it is Gaussian and targets do not sway each other",
    "one_threshold": "at one threshold if targets do not sway each other",
}
"""Lower bounds on epsilon, by what they take for granted."""
_SURE = f"{CONFIDENCE:.0%} sure, delta 1e-5"


def accounted(judgements: Sequence[Judgement]) -> tuple[str, ...]:
    """Accounted epsilons, and what the runs show against them."""
    sentences = []
    for j in judgements:
        if j.epsilon is None:
            continue
        unit = {"record": " per record", "client": " per client, so per record at most that"}.get(j.epsilon_unit, "")
        claim = f"{rule(j.defense)} accounts for an epsilon of {j.epsilon:.2f}{unit}"
        if j.epsilon_lower is None:
            sentences.append(f"{claim}.")
            continue
        if j.refutable is None:
            sentences.append(
                f"{claim}; what its runs show, at least {j.epsilon_lower:.2f} per record, is at delta 1e-5 and "
                "cannot be held against it: it accounts at a larger delta, or does not say at which."
            )
        elif j.refuted:
            sentences.append(
                f"{claim}, but its runs show at least {j.epsilon_lower:.2f} per record (95% sure): that is a bug in "
                "the noise or in its accounting."
            )
        else:
            sentences.append(f"{claim}; its runs show at least {j.epsilon_lower:.2f} per record.")
        sentences += _if_gaussian(j)
    return tuple(sentences)


def _if_gaussian(judgement: Judgement) -> list[str]:
    """The tighter bounds, beside an accounted epsilon: noise that is accounted for mostly is Gaussian.

    They prove no bug: many noisy steps on random batches are not exactly as private as one Gaussian mechanism.
    """
    found = judgement.epsilon_if_gaussian
    words = {"gaussian_noise": "", "gaussian_noise_by_auc": " if moreover targets do not sway each other"}
    known = {key: text for key, text in words.items() if found.get(key, 0.0) > 0}
    if not known:
        return []
    bounds = listed([f"at least {found[key]:.2f}{text}" for key, text in known.items()])
    doubt = ""
    if judgement.refutable is not None and not judgement.refuted and max(found.values()) > judgement.refutable:
        doubt = (
            ", which is more than was accounted for: either one of these does not hold here, or the noise or its "
            "accounting has a bug"
        )
    return [f"If the noise acts as Gaussian noise does, they show {bounds}{doubt}."]


def shown(judgements: Sequence[Judgement]) -> tuple[str, ...]:
    """The epsilon that the runs refute under each rule, beside the most that their targets could show.

    Of rules that were not judged only where no rule was: what merely watching shows is worth saying then.
    """
    known = [j for j in judgements if j.epsilon_lower is not None]
    told = [j for j in known if j.status != "unjudged"] or known
    if not told:
        return ()
    names = [f"{j.epsilon_lower:.2f} under {rule(j.defense)}" for j in told if j.epsilon_lower]
    if not names:
        return ("In terms of differential privacy these runs refute no epsilon at all.",)
    most = [j.epsilon_reachable for j in told if j.epsilon_reachable is not None]
    limit = f"; so many targets can show {max(most):.2f} at most, however much leaks" if most else ""
    return (f"In terms of differential privacy, epsilon is at least {listed(names)} ({_SURE}){limit}.",)


def checked(runs: Sequence[Facts], others: int) -> tuple[str, ...]:
    """Why the figures may be believed: who made the members, what records alone tell, what `others` can resolve."""
    sentences = []
    if runs and all(run.coins for run in runs):
        sentences.append("A fair coin per target decided whether it was trained on.")
    blind = [run.blind for run in runs if run.blind is not None]
    if blind:
        worst = max(blind, key=lambda auc: auc.low)
        found = "that is chance" if worst.low <= 0.5 else "more than chance"
        sentences.append(
            f"A classifier that sees records and labels but no model tells members with an AUC of {written(worst)}: "
            f"{found}."
        )
    if 0 < others < 1000:
        able = "can show a false alarm rate of 1%, not one of 0.1%"
        sentences.append(f"{others:,} non-members {able if others >= 100 else 'cannot show a false alarm rate of 1%'}.")
    return tuple(sentences)


def of_run(run: Facts) -> tuple[str, ...]:
    """The same of one run, with every bound on epsilon."""
    sentences = []
    if run.bounds:
        bounds = listed([f"{run.bounds[key]:.2f} {text}" for key, text in BOUNDS.items() if key in run.bounds])
        sentences.append(f"Epsilon is at least {bounds} ({_SURE}).")
        if run.epsilon_reachable is not None:
            most = f"{run.epsilon_reachable:.2f} at most, however much leaks"
            sentences.append(f"Whatever the mechanism, so many targets can show {most}.")
    elif run.epsilon_lower is not None:
        sentences.append(f"Epsilon is at least {number(run.epsilon_lower)} ({_SURE}).")
    if run.epsilon is not None:
        sentences.append(f"The run accounts for an epsilon of {number(run.epsilon)} per {run.epsilon_unit}.")
    return tuple(sentences)
