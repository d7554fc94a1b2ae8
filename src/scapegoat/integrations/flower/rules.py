"""A named strategy for every rule, in the manner of Flower's own: `AngularTrimmedMean(trim=1, fraction_train=0.8)`."""

from __future__ import annotations

import inspect
from typing import Any

from scapegoat.aggregation import Rule
from scapegoat.aggregation import registry as rules
from scapegoat.integrations.flower.strategy import RobustAggregation

# Names that a reader of Flower's strategies would look for; every other rule is called by its own name in CamelCase.
NAMES = {
    "atm": "AngularTrimmedMean",
    "clipped_atm": "ClippedAngularTrimmedMean",
    "memory_atm": "MemoryAngularTrimmedMean",
    "reputation_atm": "ReputationAngularTrimmedMean",
    "fedavg": "Mean",
    "median": "CoordinateMedian",
    "dp": "DifferentialPrivacy",
    "fltrust": "FLTrust",
    "deepsight": "DeepSight",
}

# Flower's own strategies that do what a rule of ours does; Krum, MultiKrum and Bulyan share their names.
FLOWERS = {"FedAvg": "fedavg", "FedMedian": "median", "FedTrimmedAvg": "trimmed_mean"}

_SERVER = inspect.signature(RobustAggregation.__init__).parameters


def strategy_name(rule: str) -> str:
    """The strategy's name for a registered rule."""
    return NAMES.get(rule, "".join(part.capitalize() for part in rule.split("_")))


def rule_name(strategy: str) -> str:
    """The rule that a strategy of ours or of Flower's stands for; a name that is neither stays."""
    ours = {strategy_name(name): name for name, _ in rules.classes()}
    return ours.get(strategy, FLOWERS.get(strategy, strategy))


def strategy_for(name: str, rule: type[Rule]) -> type[RobustAggregation]:
    """A strategy class whose keywords are the rule's options and those of `RobustAggregation`."""
    options = rule.model_fields
    clash = sorted(set(options) & set(_SERVER))
    if clash:
        raise TypeError(f"rule {name!r}: its option {clash[0]!r} is also one of the strategy's")

    def __init__(self: RobustAggregation, **keywords: Any) -> None:  # noqa: N807
        unknown = sorted(set(keywords) - set(options) - set(_SERVER))
        if unknown or "rule" in keywords:
            raise TypeError(
                f"{strategy_name(name)}() got an unexpected keyword argument {(unknown or ['rule'])[0]!r} "
                f"(the rule's options: {', '.join(options) or 'none'})"
            )
        rule_options = {key: keywords.pop(key) for key in list(keywords) if key in options}
        RobustAggregation.__init__(self, {"name": name, **rule_options}, **keywords)

    parameter = inspect.Parameter
    own = [
        parameter(
            key,
            parameter.KEYWORD_ONLY,
            default=field.get_default(call_default_factory=True),
            annotation=field.annotation,
        )
        for key, field in options.items()
    ]
    shared = [p.replace(kind=parameter.KEYWORD_ONLY) for key, p in _SERVER.items() if key not in ("self", "rule")]
    first = parameter("self", parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([first, *own, *shared])  # type: ignore[attr-defined]
    summary = inspect.getdoc(rule) or ""
    document = f"{summary}\n\nOptions of the rule: {', '.join(options) or 'none'}. The rest as in `RobustAggregation`."
    return type(
        strategy_name(name),
        (RobustAggregation,),
        {"__init__": __init__, "__doc__": document, "__module__": "scapegoat.integrations.flower", "rule_name": name},
    )


strategies: dict[str, type[RobustAggregation]] = {
    strategy_name(name): strategy_for(name, rule) for name, rule in rules.classes()
}
