"""The plan in words that a manager understands, and the lines that put it into practice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from scapegoat.aggregation import registry as rules
from scapegoat.experiments import Spec
from scapegoat.integrations.shared.names import class_name
from scapegoat.protections import registry as protections
from scapegoat.report.measures import ATTACK_NAMES, interval
from scapegoat.report.planned import Option
from scapegoat.report.wording import compared

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
    added = [p for p in chosen.protect if p not in today.protect]
    if added:
        steps.append(f"protect training with {' and '.join(map(_said, added))}")
    if chosen.rounds != today.rounds:
        steps.append(f"stop after {chosen.rounds} rounds instead of {today.rounds}")
    text = ", ".join(steps[:-1]) + (" and " if len(steps) > 1 else "") + steps[-1]
    return f"Do this: {text}."


def sentences(today: Option, chosen: Option, budget: float, tried: int, coins: bool = True) -> tuple[str, ...]:
    """What that gains, what it costs, who has to do it, what it leaves, and by what scores.

    Only where `coins` made the members can there be reference federations.
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
        found.append("That is less than today, not nothing: members can still be told from others by their score.")
    if chosen.epsilon is not None:
        worth = ": as a promise that is worth next to nothing" if chosen.epsilon > NO_PROMISE else ""
        found.append(f"Its noise accounts for epsilon {chosen.epsilon:.1f} for a record{worth}.")
    if chosen.references:
        found.append(
            f"The figures are by the strongest score, among them those that compare with {chosen.references} reference "
            "federations of each setting."
        )
    else:
        more = "; --references 16 holds the plan against stronger ones" if coins else ""
        found.append(f"The figures are by the scores of one run{more}.")
    if chosen.seeds == 1:
        found.append(
            f"It was chosen among {tried} settings by one seed, and the figures are those that it was chosen by; "
            "--seeds 3 adds runs that had no part in the choice."
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
    lost = 100 * chosen.cost
    costs = f"costs {lost:.1f} points of test accuracy" if lost >= 0.05 else "costs no test accuracy"
    return (
        f"It {costs} while nobody attacks ({100 * chosen.test_accuracy:.1f}% correct instead of "
        f"{100 * today.test_accuracy:.1f}%; the budget is {100 * budget:g} points), and under the worst attack the "
        f"model is {100 * chosen.under_attack:.1f}% correct (today {100 * today.under_attack:.1f}%)."
    )


def _said(written: Mapping[str, Any]) -> str:
    options = ", ".join(f"{key} {value:g}" for key, value in _changed(written).items() if isinstance(value, float))
    return f"{written['name']} ({options})" if options else str(written["name"])


def _changed(written: Mapping[str, Any]) -> dict[str, Any]:
    """A protection's options that matter to a reader: those that are not its defaults, and the first unless it is 0."""
    usual = protections.get(str(written["name"])).canonical()
    options = {key: value for key, value in written.items() if key != "name"}
    return {k: v for i, (k, v) in enumerate(options.items()) if (i == 0 and v) or v != usual.get(k)}


def lines(option: Option, spec: Spec) -> dict[str, str]:
    """What to write, by title: into a spec, a Flower server and, where clients take part, a Flower client."""
    found = {"Spec": _spec_text(option), "Flower server": _server_text(option, spec)}
    private = next((p for p in option.protect if p["name"] == "dp_sgd"), None)
    if private is not None:
        found["Flower client"] = _client_text(private)
    return found


def _spec_text(option: Option) -> str:
    protect = [{"name": p["name"], **_changed(p)} for p in option.protect]
    rule = [_rule(p) for p in option.rule] if isinstance(option.rule, list) else _rule(option.rule)
    content = {"federation": {"rounds": option.rounds, "protect": protect}, "defense": rule}
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None).rstrip()


def _rule(written: Mapping[str, Any]) -> dict[str, Any]:
    """A rule with its trim and what else is not its default."""
    usual = rules.get(str(written["name"])).canonical()
    return {k: v for k, v in written.items() if k in ("name", "trim") or v != usual.get(k)}


def _server_text(option: Option, spec: Spec) -> str:
    if isinstance(option.rule, list):
        name, arguments = "RobustAggregation", [repr([_rule(part) for part in option.rule])]
    elif ":" in str(option.rule["name"]):
        name, arguments = "RobustAggregation", [repr(_rule(option.rule))]
    else:
        options = _rule(option.rule)
        name, arguments = class_name(str(options.pop("name"))), [f"{k}={v!r}" for k, v in options.items()]
    decay = next((p for p in option.protect if p["name"] == "weight_decay"), None)
    if decay is not None:
        changed = {"rate": decay["rate"]} | ({"decoupled": True} if decay.get("decoupled") else {})
        arguments.append(f"weight_decay={changed!r}" if len(changed) > 1 else f"weight_decay={decay['rate']!r}")
    cooling = next((p for p in option.protect if p["name"] == "cooling"), None)
    if cooling is not None:
        arguments.append(f"cooling={_changed(cooling) or True!r}")
    federation = spec.federation
    arguments.append(f"fraction_train={federation.fraction!r}")
    comment = ""
    if federation.local.sends == "gradient":
        server = federation.server.model_dump(mode="json", exclude_defaults=False)
        shown = {key: server[key] for key in ("optimizer", "lr")}
        arguments += ['replies="updates"', f"server_optimizer={shown!r}"]
        comment = "# As in the audit: clients reply with the gradient of a batch, the server steps.\n"
    return (
        f"from scapegoat.integrations.flower import {name}\n\n{comment}"
        f"strategy = {name}({', '.join(arguments)})\n"
        f"strategy.start(grid=grid, initial_arrays=arrays, num_rounds={option.rounds})"
    )


def _client_text(private: Mapping[str, Any]) -> str:
    return (
        "from scapegoat.integrations.private_step import PrivateStep\n\n"
        f"private = PrivateStep(model, clip={private['clip']!r}, noise={private['noise']!r}, batch_size=64)\n"
        "for x, y in private.batches(records, labels):  # each record with the same chance\n"
        "    private.gradients(x, y)  # in place of loss.backward(): clipped per record, with noise\n"
        "    optimizer.step()"
    )
