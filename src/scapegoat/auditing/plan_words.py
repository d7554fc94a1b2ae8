"""The plan in words that a manager understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scapegoat.auditing.plan_lines import changed
from scapegoat.protections import registry as protections
from scapegoat.report.measures import ATTACK_NAMES, interval
from scapegoat.report.planned import Option
from scapegoat.report.wording import compared, listed

STILL_TOLD = 0.6
"""From this AUC on the plan is said to leave something."""
NO_PROMISE = 10.0
"""An epsilon above this promises a record next to nothing."""


def headline(today: Option, chosen: Option) -> str:
    """What to do, in one sentence."""
    if chosen == today:
        return "Nothing that was tried within the budget leaks clearly less than today's setting."
    steps = []
    if chosen.rule != today.rule:
        steps.append(f"aggregate with {chosen.rule_label}")
    if chosen.server is not None:
        steps.append(f"let the server step by {_stepping(chosen.server)}")
    added = [p for p in chosen.protect if p not in today.protect]
    if added:
        steps.append(f"protect training with {' and '.join(map(_said, added))}")
    if chosen.rounds != today.rounds:
        steps.append(f"stop after {chosen.rounds} rounds instead of {today.rounds}")
    text = ", ".join(steps[:-1]) + (" and " if len(steps) > 1 else "") + steps[-1]
    return f"Do this: {text}."


def sentences(
    today: Option,
    chosen: Option,
    budget: float,
    tried: int,
    fresh: Option | None = None,
    confirmed: bool | None = None,
    *,
    coins: bool = True,
) -> tuple[str, ...]:
    """What that gains, what it costs, who has to do it, what it leaves, and by what scores.

    `fresh` is the recommended setting by the seeds alone that had no part in the choice, `confirmed` whether they agree
    with it. Only where `coins` made the members can there be reference federations.
    """
    found = [f"Today, {_told(today)}; guessing gets 50."]
    if chosen != today:
        found[0] = f"Today, {_told(today)}; with this plan, {_told(chosen)}; guessing gets 50."
        found.append(_price(today, chosen, budget))
        asked = [str(p["name"]) for p in chosen.protect if protections.cls(str(p["name"])).acts == "client"]
        if asked:
            found.append(f"Every client must train with {' and '.join(asked)}.")
        else:
            found.append("The server does it alone: clients change nothing.")
    if chosen.leakage.value >= STILL_TOLD:
        less = "That is not nothing" if chosen == today else "That is less than today, not nothing"
        found.append(f"{less}: members can still be told from others by their score.")
    if chosen.epsilon is not None:
        worth = ": as a promise that is worth next to nothing" if chosen.epsilon > NO_PROMISE else ""
        found.append(f"Its noise accounts for epsilon {chosen.epsilon:.1f} for a record{worth}.")
    if chosen.references:
        found.append(
            f"The figures are by the strongest score, among them those that compare with {chosen.references} reference "
            "federations of each setting."
        )
        if chosen.unfit:
            names = listed([ATTACK_NAMES.get(attack, attack) for attack in chosen.unfit])
            found.append(
                f"The references do not fit the runs attacked by {names}: there the figure is by the scores of the run "
                "alone; --rehearse trains references under the attack."
            )
    else:
        found.append("The figures are by the scores of one run.")
        if coins and chosen != today:
            found.append(
                "Before you rely on them, hold the plan against stronger ones (--references 16): scores that compare "
                "with reference federations have found 0.1 to 0.2 of AUC more under plans chosen without them."
            )
    if chosen.seeds == 1:
        found.append(
            f"It was chosen among {tried} settings by one seed, and the figures are those that it was chosen by; "
            "--seeds 3 adds runs that had no part in the choice."
        )
    elif fresh is not None:
        others = f" (today's under attack over {today.seeds})" if today.seeds < chosen.seeds else ""
        found.append(
            f"It was chosen among {tried} settings by one seed; its figures are means over {chosen.seeds} seeds"
            f"{others}. By the {fresh.seeds} seed{'' if fresh.seeds == 1 else 's'} that had no part in the choice, it "
            f"{_costs(fresh)}, and the worst attack has an AUC of {fresh.leakage.value:.2f}"
            f"{'.' if confirmed else ': by these it would not have been chosen.'}"
        )
    return tuple(found)


def _told(option: Option) -> str:
    shown = interval(option.leakage)
    attack = ATTACK_NAMES.get(option.attack, option.attack)
    return (
        f"{attack} tells a member from a stranger in {compared(option.leakage.value)} "
        f"(AUC {option.leakage.value:.2f}{' ' + shown if shown else ''})"
    )


def _price(today: Option, chosen: Option, budget: float) -> str:
    # Today's figure may be known of fewer seeds than the cost.
    before = chosen.test_accuracy + chosen.cost
    return (
        f"It {_costs(chosen)} while nobody attacks ({100 * chosen.test_accuracy:.1f}% correct instead of "
        f"{100 * before:.1f}%; the budget is {100 * budget:g} points), and under the worst attack the "
        f"model is {100 * chosen.under_attack:.1f}% correct (today {100 * today.under_attack:.1f}%)."
    )


def _costs(option: Option) -> str:
    lost = 100 * option.cost
    return f"costs {lost:.1f} points of test accuracy" if lost >= 0.05 else "costs no test accuracy"


def _stepping(server: Mapping[str, Any]) -> str:
    name = {"sgd": "plain SGD", "adam": "Adam"}.get(str(server["optimizer"]), str(server["optimizer"]))
    return f"{name} with learning rate {server['lr']:g}"


def _said(written: Mapping[str, Any]) -> str:
    options = ", ".join(f"{key} {value:g}" for key, value in changed(written).items() if isinstance(value, float))
    return f"{written['name']} ({options})" if options else str(written["name"])
